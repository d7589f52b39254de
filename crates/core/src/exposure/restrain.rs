//! Doing without, where targets are short of memory.
//!
//! Clearing makes pages look old to reclaim, so that a monitor that clears all of a hot set makes
//! reclaim take it. Reading changes nothing, and short runs next to nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::target::ExposureTarget;
use crate::call::TargetId;
use crate::ops::Look;
use crate::range::PAGE_SIZE;
use crate::snapshot::Restraint;
use crate::survey::Pressure;
use crate::time::Nanos;

/// A sign of reclaim counts for so long.
const REMEMBERED: Duration = Duration::from_secs(6);
/// Asked for that often; less often with many targets, since asking takes some 0.3 ms.
const EVERY: Duration = Duration::from_millis(500);
const LONGEST_EVERY: Duration = Duration::from_secs(5);
/// Reclaim is near if less than a so-manieth part of the target's memory may be allocated yet.
const NEAR: u64 = 32;
/// Tasks that wait for memory for such a part of the time are in trouble, if pages are wanted again.
const STALLED: f64 = 0.2;
/// Where reclaim takes private memory that is wanted again, so much of it may have lost its bits unseen.
const RECLAIMED: f64 = 0.5;

/// What is known of a target's pressure.
#[derive(Debug, Clone, Copy, Default)]
struct TargetPressure {
    asked: Option<(Nanos, Pressure)>,
    short: Option<Nanos>,
    severe: Option<Nanos>,
    restraint: Restraint,
    /// reclaim has looked at private memory from one asking to the next
    reclaims: bool,
}

/// Decides how much to do without, by target.
#[derive(Debug, Default)]
pub(super) struct Restrain(BTreeMap<TargetId, TargetPressure>);

impl Restrain {
    /// What to do without for a target.
    pub fn of<O: Look>(&mut self, ops: &mut O, w: &ExposureTarget, now: Nanos) -> Restraint {
        let targets = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let every = (EVERY * (1 + targets.min(100) / 4)).min(LONGEST_EVERY);
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

    /// Of the pages of a target, the part that reclaim may have cleared lately: it looks at the coldest first,
    /// and tells nobody at which.
    pub fn cleared_by_reclaim(&self, id: TargetId) -> f64 {
        if self.0.get(&id).is_some_and(|known| known.reclaims) { RECLAIMED } else { 0.0 }
    }

    /// The targets that are left.
    pub fn retain(&mut self, is_left: impl Fn(TargetId) -> bool) {
        self.0.retain(|id, _| is_left(*id));
    }

    /// The most that is done without for any target.
    pub fn most(&self) -> Restraint {
        self.0.values().map(|k| k.restraint).max().unwrap_or_default()
    }
}

impl TargetPressure {
    fn take(&mut self, now: Nanos, is: Pressure, resident: u64) {
        if is.headroom.is_some_and(|left| left < resident / NEAR) {
            self.short = Some(now);
        }
        if let Some((at, was)) = self.asked {
            let seconds = now.since(at).as_secs_f64().max(1e-3);
            self.reclaims = is.scanned > was.scanned && is.private_refaults > was.private_refaults;
            // What is wanted again without a scan was paged out on purpose, which does not go by age.
            if is.scanned > was.scanned {
                self.short = Some(now);
                let stalled = is.stalled.saturating_sub(was.stalled).as_secs_f64() / seconds;
                if stalled > STALLED && is.refaults > was.refaults {
                    self.severe = Some(now);
                }
            }
        }
        self.asked = Some((now, is));
        let lately = |at: Option<Nanos>| at.is_some_and(|at| now.since(at) < REMEMBERED);
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

    /// What is read from a disk once has reclaim look at pages as well, of files.
    #[test]
    fn what_reclaim_takes_may_have_lost_its_bits() {
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
    fn it_lasts_for_a_while() {
        let calm = seen(7, 3, 0, None);
        let over = seen(9, 3, 0, None);
        assert_eq!(after(&[(0, calm), (1, over), (5, over)]), Restraint::ShortRuns);
        assert_eq!(after(&[(0, calm), (1, over), (8, over)]), Restraint::None);
    }
}
