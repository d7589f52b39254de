//! Tuning of the sampling and aggregation intervals, as kernel DAMON does since Linux 6.15.

use std::time::Duration;

use crate::attrs::{Attrs, AttrsError};
use crate::scheme::feed_loop;
use crate::snapshot::Snapshot;

/// The share of accesses that a monitor with regions is to observe, and the limits of its sampling interval.
/// Intervals that are too short observe almost nothing, and too long ones find everything accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalsGoal {
    /// share of all accesses that could be observed, in 1/10,000
    pub access_bp: u32,
    /// number of aggregation intervals after each of which the intervals are changed
    pub aggrs: u32,
    /// shortest sampling interval
    pub min_sample: Duration,
    /// longest sampling interval
    pub max_sample: Duration,
}

/// Tunes the intervals of a monitor by its snapshots.
#[derive(Debug, Clone)]
pub struct IntervalsTuner {
    goal: IntervalsGoal,
    /// number of snapshots since the last change
    snapshots: u32,
}

impl IntervalsTuner {
    /// A tuner that has seen no snapshot.
    #[must_use]
    pub fn new(goal: IntervalsGoal) -> Self {
        IntervalsTuner { goal, snapshots: 0 }
    }

    /// Takes the next snapshot into account. Returns the attributes for the time after it, if the intervals change.
    ///
    /// A snapshot without memory does not count, because there was nothing to observe.
    pub fn next(&mut self, s: &Snapshot) -> Option<Attrs> {
        if s.nr_regions() == 0 {
            return None;
        }
        self.snapshots += 1;
        if self.snapshots < self.goal.aggrs {
            return None;
        }
        self.snapshots = 0;
        let sample = self.goal.sample(s.attrs.sample, observed_bp(s));
        (sample != s.attrs.sample).then(|| at_sample(s.attrs, sample))
    }
}

/// The attributes with another sampling interval, and as many of them in an aggregation interval.
fn at_sample(attrs: Attrs, sample: Duration) -> Attrs {
    Attrs { sample, aggr: sample.saturating_mul(attrs.samples()), ..attrs }
}

impl IntervalsGoal {
    /// Checks whether tuning may start with these attributes, which must be valid.
    ///
    /// # Errors
    /// If the sampling interval is outside its limits, or attributes at a limit would be invalid.
    pub fn check(&self, attrs: &Attrs) -> Result<(), AttrsError> {
        let (sample, min, max) = (attrs.sample, self.min_sample, self.max_sample);
        if !(min..=max).contains(&sample) {
            return Err(AttrsError::OutOfGoal { sample, min, max });
        }
        [min, max].into_iter().try_for_each(|limit| at_sample(*attrs, limit).checked().map(|_| ()))
    }

    /// The sampling interval after one of length `sample`, in which this share of all accesses was observed. As
    /// `damon_get_intervals_adaptation_bp`: it grows to at most twice its length, and shrinks to at most half.
    /// Example: 8 % observed with a goal of 4 % halve it, 2 % make it longer by a half, and nothing at all doubles it.
    fn sample(&self, sample: Duration, observed_bp: u64) -> Duration {
        /// the input of the loop that changes nothing; its output is divided by 10,000
        const NO_CHANGE_INPUT: u64 = 100_000_000;
        let score = observed_bp * 10_000 / u64::from(self.access_bp).max(1);
        let times = match feed_loop(NO_CHANGE_INPUT, score) / 10_000 {
            shorter @ ..=10_000 => 5_000 + shorter / 2,
            longer => longer,
        };
        let tuned = sample.mul_f64(times as f64 / 10_000.0);
        // Whole microseconds, as in the kernel.
        let tuned = Duration::from_micros(u64::try_from(tuned.as_micros()).unwrap_or(u64::MAX));
        tuned.clamp(self.min_sample, self.max_sample)
    }
}

/// The accesses that were observed, of all that could be, in 1/10,000: each region counts with its size.
fn observed_bp(s: &Snapshot) -> u64 {
    let regions = || s.targets.iter().flat_map(|t| &t.regions);
    let all: u128 = regions().map(|r| u128::from(r.range.len())).sum();
    let observed: u128 =
        regions().map(|r| u128::from(r.range.len()) * u128::from(r.accesses_bp)).sum();
    u64::try_from(observed / all.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::testing::{snapshot, target, view};
    use crate::snapshot::RegionView;

    const GOAL: IntervalsGoal = IntervalsGoal {
        access_bp: 400,
        aggrs: 3,
        min_sample: Duration::from_millis(5),
        max_sample: Duration::from_secs(10),
    };

    #[test]
    fn intervals_follow_the_share_as_in_the_kernel() {
        let after = |bp| GOAL.sample(Duration::from_millis(100), bp).as_micros();
        // Nothing, half of the goal, the goal, one and a half of it, twice and all.
        let shares = [0, 200, 400, 600, 800, 10_000];
        assert_eq!(shares.map(after), [200_000, 150_000, 100_000, 75_000, 50_000, 50_000]);
    }

    #[test]
    fn intervals_stay_within_their_limits() {
        let after = |ms, bp| GOAL.sample(Duration::from_millis(ms), bp);
        assert_eq!(after(6, 10_000), GOAL.min_sample);
        assert_eq!(after(9000, 0), GOAL.max_sample);
        let attrs = Attrs::default();
        assert!(GOAL.check(&attrs).is_ok());
        let refused = |goal: IntervalsGoal| goal.check(&attrs).unwrap_err();
        let late = IntervalsGoal { min_sample: Duration::from_secs(1), ..GOAL };
        assert!(matches!(refused(late), AttrsError::OutOfGoal { .. }));
        let short = IntervalsGoal { min_sample: Duration::from_micros(1), ..GOAL };
        assert!(matches!(refused(short), AttrsError::Interval { .. }));
        let no_share = IntervalsGoal { access_bp: 0, ..GOAL };
        assert_eq!(no_share.sample(Duration::from_millis(10), 2), GOAL.min_sample);
    }

    /// Found by a review: while no process had the name, the interval grew to its limit.
    #[test]
    fn intervals_stay_while_there_is_nothing_to_observe() {
        let mut tuner = IntervalsTuner::new(GOAL);
        let of = |regions: &[RegionView]| snapshot(0, vec![target(1, regions)]);
        let idle = [view(0, 8, 0.0, Duration::ZERO)];
        assert!((0..100).all(|_| tuner.next(&of(&[])).is_none()));
        assert_eq!([0; 3].map(|_| tuner.next(&of(&idle)).is_some()), [false, false, true]);
    }
}
