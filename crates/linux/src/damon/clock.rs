//! When results come, and the length of their intervals.

use std::time::Duration;

use isotherm_core::Nanos;

/// A kdamond without a result for this many aggregation intervals is late, or silent.
const LATE_INTERVALS: u32 = 3;
const SILENT_INTERVALS: u32 = 20;
/// A kdamond counts as silent only if this time has passed in addition.
const SILENT: Duration = Duration::from_secs(10);
/// Minimal and maximal time between two checks for a due result.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_secs(1);

/// A kdamond measures time by counting its sampling intervals, each of which lasts a little longer than
/// requested. So isotherm measures the real length of an interval.
#[derive(Debug)]
pub(super) struct Clock {
    last_end: Nanos,
    pace: Duration,
    dropped: u64,
}

impl Clock {
    /// Starts the clock: from now on, a result comes about every `interval`.
    pub fn begin(now: Nanos, interval: Duration) -> Self {
        Clock { last_end: now, pace: interval, dropped: 0 }
    }

    /// The start and the length of the interval that ended `at`. `dropped` is the total number of dropped
    /// results. If it has grown since the last result, the length is assumed to be that of the earlier
    /// intervals.
    pub fn interval(&mut self, at: Nanos, dropped: u64) -> (Nanos, Duration) {
        let at = at.max(self.last_end + Duration::from_nanos(1));
        let last_end = std::mem::replace(&mut self.last_end, at);
        if std::mem::replace(&mut self.dropped, dropped) != dropped {
            let pace = u64::try_from(self.pace.as_nanos()).unwrap_or(u64::MAX);
            return (last_end.max(Nanos(at.0.saturating_sub(pace))), self.pace);
        }
        let length = at.since(last_end);
        // A single late result is little evidence about the others.
        self.pace = (self.pace * 7 + length) / 8;
        (last_end, length)
    }

    /// End of the last result.
    pub fn last_end(&self) -> Nanos {
        self.last_end
    }

    /// Measured length of an aggregation interval.
    pub fn pace(&self) -> Duration {
        self.pace
    }

    /// The time of the next check for a result.
    pub fn next(&self, now: Nanos) -> Nanos {
        let again = now + (self.pace / 20).clamp(SOONEST, LATEST);
        (self.last_end + self.pace + SOONEST).max(again).min(now + LATEST)
    }

    /// Whether a result is overdue.
    pub fn is_late(&self, now: Nanos) -> bool {
        now.since(self.last_end) > self.pace * LATE_INTERVALS
    }

    /// Whether no further result can be expected.
    pub fn is_silent(&self, now: Nanos) -> bool {
        now.since(self.last_end) > self.pace * SILENT_INTERVALS + SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(n: u64) -> Nanos {
        Nanos(n * MS)
    }

    fn interval(clock: &mut Clock, end: u64, dropped: u64) -> (u64, u64) {
        let (start, length) = clock.interval(ms(end), dropped);
        (start.0 / MS, u64::try_from(length.as_millis()).unwrap())
    }

    #[test]
    fn intervals_are_as_long_as_they_took() {
        let mut clock = Clock::begin(ms(1000), Duration::from_millis(100));
        assert_eq!(interval(&mut clock, 1116, 0), (1000, 116));
        assert_eq!(clock.pace(), Duration::from_millis(102));
        assert_eq!(interval(&mut clock, 1218, 0), (1116, 102));
    }

    #[test]
    fn after_a_gap_an_interval_is_as_long_as_others() {
        let mut clock = Clock::begin(ms(0), Duration::from_millis(100));
        assert_eq!(interval(&mut clock, 100, 0), (0, 100));
        assert_eq!(interval(&mut clock, 300, 1), (200, 100));
        assert_eq!(interval(&mut clock, 400, 1), (300, 100));
        assert_eq!(interval(&mut clock, 450, 2), (400, 100), "never before the end of the last");
    }

    /// Intervals are never empty, and never overlap.
    #[test]
    fn time_goes_on() {
        let mut clock = Clock::begin(ms(5), Duration::from_millis(100));
        let (start, length) = clock.interval(ms(4), 0);
        assert!(start == ms(5) && length > Duration::ZERO);
    }

    #[test]
    fn asked_for_when_due_and_then_often() {
        let clock = Clock::begin(ms(0), Duration::from_millis(400));
        assert_eq!(clock.next(ms(0)), ms(410));
        assert_eq!(clock.next(ms(405)), ms(425), "a twentieth of an interval later");
        let slow = Clock::begin(ms(0), Duration::from_secs(60));
        assert_eq!(slow.next(ms(0)), ms(1000), "to see targets that end");
        assert!(!clock.is_late(ms(1200)) && clock.is_late(ms(1201)));
        assert!(!clock.is_silent(ms(18_000)) && clock.is_silent(ms(18_001)));
    }
}
