//! Restraint: the clears that the monitor omits while targets are short of memory.
//!
//! A clear makes pages look old to reclaim. A monitor that clears a whole hot set causes reclaim to evict it.
//! Reads change nothing, and short runs change almost nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::target::ExposureTarget;
use crate::call::TargetId;
use crate::ops::Look;
use crate::range::PAGE_SIZE;
use crate::snapshot::Restraint;
use crate::survey::Pressure;
use crate::time::Nanos;

/// A sign of reclaim is valid for this time.
const SIGN_LIFETIME: Duration = Duration::from_secs(6);
/// Interval between two queries of pressure; longer with many targets, because a query costs about 0.3 ms.
const QUERY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_QUERY_INTERVAL: Duration = Duration::from_secs(5);
/// Reclaim is near if the headroom is less than 1/32 of the target's resident memory.
const HEADROOM_DIVISOR: u64 = 32;
/// Pressure is severe if tasks wait for memory for more than this fraction of the time, with refaults.
const STALLED: f64 = 0.2;
/// Fraction of the pages that may have lost their accessed bits while reclaim takes private memory that
/// refaults.
const RECLAIMED: f64 = 0.5;

/// The memory pressure of a target.
#[derive(Debug, Clone, Copy, Default)]
struct TargetPressure {
    asked: Option<(Nanos, Pressure)>,
    short: Option<Nanos>,
    severe: Option<Nanos>,
    restraint: Restraint,
    /// reclaim scanned, and private memory refaulted, between the last two queries
    reclaims: bool,
}

/// The restraint of each target.
#[derive(Debug, Default)]
pub(super) struct Restrain(BTreeMap<TargetId, TargetPressure>);

impl Restrain {
    /// The restraint for a target. Queries its pressure if the last query is old enough.
    pub fn of<O: Look>(&mut self, ops: &mut O, w: &ExposureTarget, now: Nanos) -> Restraint {
        let targets = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let every = (QUERY_INTERVAL * (1 + targets.min(100) / 4)).min(MAX_QUERY_INTERVAL);
        let known = self.0.entry(w.id).or_default();
        if known.asked.is_some_and(|(at, _)| now.since(at) < every) {
            return known.restraint;
        }
        let Some(pressure) = ops.survey().and_then(|s| s.pressure(w.id)) else {
            *known = TargetPressure::default();
            return Restraint::None;
        };
        known.take(now, pressure, w.resident_pages() * PAGE_SIZE);
        known.restraint
    }

    /// Fraction of the target's pages that reclaim may have cleared recently. Reclaim looks at the coldest
    /// pages first, and does not report which.
    pub fn cleared_by_reclaim(&self, id: TargetId) -> f64 {
        if self.0.get(&id).is_some_and(|known| known.reclaims) { RECLAIMED } else { 0.0 }
    }

    /// Keeps the targets for which `is_left` holds.
    pub fn retain(&mut self, is_left: impl Fn(TargetId) -> bool) {
        self.0.retain(|id, _| is_left(*id));
    }

    /// The strongest restraint of all targets.
    pub fn most(&self) -> Restraint {
        self.0.values().map(|k| k.restraint).max().unwrap_or_default()
    }
}

impl TargetPressure {
    fn take(&mut self, now: Nanos, is: Pressure, resident: u64) {
        if is.headroom.is_some_and(|left| left < resident / HEADROOM_DIVISOR) {
            self.short = Some(now);
        }
        if let Some((at, was)) = self.asked {
            let seconds = now.since(at).as_secs_f64().max(1e-3);
            self.reclaims = is.scanned > was.scanned && is.private_refaults > was.private_refaults;
            // Refaults without a scan follow from deliberate page-out, which does not depend on age.
            if is.scanned > was.scanned {
                self.short = Some(now);
                let stalled = is.stalled.saturating_sub(was.stalled).as_secs_f64() / seconds;
                if stalled > STALLED && is.refaults > was.refaults {
                    self.severe = Some(now);
                }
            }
        }
        self.asked = Some((now, is));
        let lately = |at: Option<Nanos>| at.is_some_and(|at| now.since(at) < SIGN_LIFETIME);
        self.restraint = match (lately(self.severe), lately(self.short)) {
            (true, _) => Restraint::ReadOnly,
            (_, true) => Restraint::ShortRuns,
            _ => Restraint::None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn after(steps: &[(u64, Pressure)]) -> Restraint {
        let mut known = TargetPressure::default();
        for (s, p) in steps {
            known.take(Nanos(s * 1_000_000_000), *p, 1024 * MIB);
        }
        known.restraint
    }

    fn seen(scanned: u64, refaults: u64, stalled_ms: u64, headroom: Option<u64>) -> Pressure {
        let stalled = Duration::from_millis(stalled_ms);
        Pressure { scanned, refaults, stalled, headroom, ..Pressure::default() }
    }

    /// A single read of data from disk also makes reclaim scan pages, of files.
    #[test]
    fn reclaim_may_clear_accessed_bits() {
        let mut known = TargetPressure::default();
        let mut at = |ms: u64, scanned, private_refaults| {
            let is = Pressure { private_refaults, ..seen(scanned, private_refaults, 0, None) };
            known.take(Nanos(ms * 1_000_000), is, 64 * MIB);
            known.reclaims
        };
        assert!(!at(0, 9000, 5) && !at(500, 9900, 5) && !at(1000, 9900, 6) && at(1500, 9990, 7));
        assert!(!at(2000, 9990, 7), "it is over");
    }

    #[test]
    fn reclaim_calls_for_short_runs_and_trouble_for_none() {
        let calm = seen(7, 3, 0, None);
        assert_eq!(after(&[(0, calm), (1, calm)]), Restraint::None);
        assert_eq!(after(&[(0, calm), (1, seen(9, 3, 0, None))]), Restraint::ShortRuns);
        assert_eq!(after(&[(0, calm), (1, seen(7, 9, 300, None))]), Restraint::None);
        assert_eq!(after(&[(0, seen(7, 3, 0, Some(16 * MIB)))]), Restraint::ShortRuns);
        assert_eq!(after(&[(0, seen(7, 3, 0, Some(64 * MIB)))]), Restraint::None);
        assert_eq!(after(&[(0, calm), (1, seen(9, 4, 300, None))]), Restraint::ReadOnly);
        assert_eq!(after(&[(0, calm), (1, seen(9, 3, 300, None))]), Restraint::ShortRuns);
    }

    #[test]
    fn restraint_lasts_after_pressure() {
        let calm = seen(7, 3, 0, None);
        let over = seen(9, 3, 0, None);
        assert_eq!(after(&[(0, calm), (1, over), (5, over)]), Restraint::ShortRuns);
        assert_eq!(after(&[(0, calm), (1, over), (8, over)]), Restraint::None);
    }
}
