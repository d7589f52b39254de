//! Heat and idle time of a region in a snapshot.

use std::time::Duration;

use isotherm_core::scheme::mean_hz;
use isotherm_core::{Heat, RegionView, Thresholds};

/// The idle times that are distinguished, ascending. The level of memory is the number of them that it has
/// reached.
#[derive(Debug, Clone)]
pub(super) struct Ladder {
    steps: Vec<Duration>,
    /// the level from which paging out is worthwhile
    pub(super) least: usize,
}

impl Ladder {
    pub(super) fn new(mut steps: Vec<Duration>, min_age: Duration) -> Self {
        steps.push(min_age);
        steps.sort_unstable();
        steps.dedup();
        let mut ladder = Ladder { steps, least: 0 };
        ladder.least = ladder.level(min_age);
        ladder
    }

    pub(super) fn steps(&self) -> &[Duration] {
        &self.steps
    }

    /// The level of memory that has been idle for this long.
    pub(super) fn level(&self, idle: Duration) -> usize {
        self.steps.partition_point(|&step| step <= idle)
    }

    /// The number of idle times that a region has reached. It has reached an idle time if it is cold with that
    /// time as the cold age, and almost no page was touched within it.
    fn reached(&self, r: &RegionView, hot_hz: f64) -> usize {
        let is_idle = |&&step: &&Duration| {
            let t = Thresholds { hot_hz, cold_age: step };
            r.heat(&t) == Heat::Cold && touched_within(r, step) < MAX_COLD_SHARE
        };
        self.steps.iter().take_while(is_idle).count()
    }
}

/// Maximum touched share of cold memory. Memory above it would lose too many pages that are in use.
const MAX_COLD_SHARE: f64 = 0.02;
/// Time over which the touched share is computed. A snapshot is shorter, but its rates describe a longer time.
const SHARE_TIME: Duration = Duration::from_secs(5);

/// Share of the pages that are touched within `time`: 1 - exp(-l s) at rate l within s.
fn touched_within(r: &RegionView, time: Duration) -> f64 {
    let within = -(-f64::from(r.rate.hz) * time.as_secs_f64()).exp_m1();
    within * f64::from(r.touched_bp.min(10_000)) / 1e4
}

/// State of a region in a snapshot, per byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionBlockState {
    /// share that is resident and observable
    pub(super) seen: f64,
    /// whether at least half of the resident memory is unknown
    pub(super) is_unknown: bool,
    /// share that is resident and was touched recently
    pub(super) touched: f64,
    /// whether it is hot
    pub(super) hot: bool,
    /// whether more than almost none of it was touched in the snapshot
    pub(super) accessed: bool,
    /// touches of its observable pages per second
    pub(super) hz: f64,
    pub(super) level: usize,
    pub(super) age: Duration,
}

impl RegionBlockState {
    pub(super) fn new(r: &RegionView, sample: Duration, hot_hz: f64, ladder: &Ladder) -> Self {
        let part = |bp: u64| bp.min(10_000) as f64 / 1e4;
        let resident = part(r.resident_bp.into());
        let unknown = part(r.unknown_bp.total()).min(resident);
        let seen = resident - unknown;
        let hot = r.heat(&Thresholds { hot_hz, ..Thresholds::default() }) == Heat::Hot;
        let touched = touched_within(r, SHARE_TIME);
        let accessed = (r.accesses_bp > 0 || hot) && touched >= MAX_COLD_SHARE;
        RegionBlockState {
            seen,
            is_unknown: unknown > 0.0 && unknown >= seen,
            touched: if accessed { seen * touched } else { 0.0 },
            hot,
            accessed,
            hz: mean_hz(r, sample),
            level: ladder.reached(r, hot_hz),
            age: r.age,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::region;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn ladder() -> Ladder {
        Ladder::new(vec![S(30), S(5), S(10)], S(10))
    }

    #[test]
    fn a_level_is_reached_by_age_and_by_not_being_touched() {
        let levels = [4, 5, 10, 29, 30].map(|s| {
            RegionBlockState::new(
                &RegionView { age: S(s), ..region(0, 1 << 16, 0.0) },
                S(1),
                10.0,
                &ladder(),
            )
            .level
        });
        assert_eq!(levels, [0, 1, 2, 2, 3]);
        let level = |hz, touched_bp| {
            let r = RegionView { age: S(60), touched_bp, ..region(0, 1 << 16, hz) };
            RegionBlockState::new(&r, S(1), 10.0, &ladder()).level
        };
        // If pages are touched once in 1000 s, 1 % of them are touched within 10 s, and 3 % within 30 s.
        assert_eq!([level(0.001, 10_000), level(0.01, 10_000)], [2, 0]);
        // A page of a hundred is let go with the rest, a page of twenty is not.
        assert_eq!([level(50.0, 100), level(50.0, 500)], [3, 0]);
    }
}
