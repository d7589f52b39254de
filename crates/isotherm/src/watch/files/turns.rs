//! When accesses are counted: always, or in turns if counting all of them would cost too much.

use std::time::Duration;

use isotherm_core::Nanos;

/// Time by which counting delays a read.
const DELAY: Duration = Duration::from_nanos(60);
/// Time of a CPU that all reads together may lose. One program may make all of them with a part of a CPU, and must not
/// lose 1 % of its own time; and `DELAY` differs between machines.
const MAX_LOST_SHARE: f64 = 0.0015;
/// Length of a turn, and the shortest part of it that counts. Beginning and ending a turn takes 1 ms.
const TURN_LENGTH: Duration = Duration::from_millis(500);
const MIN_ON_TIME: Duration = Duration::from_millis(4);
/// While accesses are counted, their rate is checked this often: after a pause, many of them may begin at any time.
const RATE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A shorter time does not show the rate: a turn may end just after a check.
const MIN_CHECKED_TIME: Duration = Duration::from_millis(1);
/// Maximum growth of the share from one check to the next, so that a short pause does not make the next accesses expensive.
const MAX_GROWTH: f64 = 2.0;
/// The fractional part of the golden ratio: its multiples are spread evenly, so that no periodic work hides.
const GOLDEN: f64 = 0.618_033_988_75;

/// The parts of the present turn.
#[derive(Debug)]
pub struct SamplingSlices {
    number: u32,
    on: Nanos,
    off: Nanos,
    end: Nanos,
    /// last check of the rate in this turn, or its begin
    checked: Nanos,
    /// share of the time in which accesses are counted
    share: f64,
    /// all accesses are counted, at any cost
    is_lasting: bool,
}

impl SamplingSlices {
    /// The first turn is short: how many accesses there are is not known yet.
    pub fn begin(now: Nanos) -> Self {
        let off = now + MIN_ON_TIME;
        let end = now + TURN_LENGTH;
        SamplingSlices { number: 0, on: now, off, end, checked: now, share: 0.0, is_lasting: false }
    }

    /// A single turn, which does not end.
    pub fn lasting(now: Nanos) -> Self {
        SamplingSlices { share: 1.0, is_lasting: true, ..SamplingSlices::begin(now) }
    }

    /// Whether to count at `now`. Begins the next turn if it is time.
    pub fn is_on(&mut self, now: Nanos) -> bool {
        if now >= self.end {
            let on = TURN_LENGTH.mul_f64(self.share).max(MIN_ON_TIME);
            self.number = self.number.wrapping_add(1);
            let phase = (f64::from(self.number) * GOLDEN).fract();
            self.on = now + (TURN_LENGTH - on).mul_f64(phase);
            (self.off, self.end) = (self.on + on, now + TURN_LENGTH);
            self.checked = self.on;
        }
        // From the last part of a turn to the first of the next, the programs stay attached.
        self.on <= now && (now < self.off || self.share >= 1.0)
    }

    /// The time at which [`Self::is_on`] or [`Self::is_check_due`] may change.
    pub fn next(&self, now: Nanos) -> Nanos {
        let check = self.checked + RATE_CHECK_INTERVAL;
        let all = [self.on, self.off, self.end, check.min(self.end)];
        all.into_iter().filter(|at| *at > now).min().unwrap_or(self.end)
    }

    /// While it is on: whether to call [`Self::set_share`] at `now`, before [`Self::is_on`].
    pub fn is_check_due(&self, now: Nanos) -> bool {
        now >= self.end || now >= self.checked + RATE_CHECK_INTERVAL
    }

    /// Counting begins at `now`, which may be later than planned.
    pub fn begun(&mut self, now: Nanos) {
        self.checked = now;
    }

    /// In the last `time` that counted, there were so many calls. A suitable part of the time counts from now on, also
    /// of this turn.
    pub fn set_share(&mut self, calls: u64, time: Duration, now: Nanos) {
        if self.is_lasting || time < MIN_CHECKED_TIME {
            return;
        }
        let per_second = calls as f64 / time.as_secs_f64();
        let share = MAX_LOST_SHARE / (per_second * DELAY.as_secs_f64()).max(1e-9);
        let most = if self.share > 0.0 { self.share * MAX_GROWTH } else { 1.0 };
        self.share = share.min(most).min(1.0);
        self.off = self.off.min(self.on + TURN_LENGTH.mul_f64(self.share).max(MIN_ON_TIME));
        self.checked = now;
    }

    /// Time that calls have lost.
    pub fn lost(calls: u64) -> Duration {
        DELAY.mul_f64(calls as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What a minute has cost.
    struct Minute {
        /// share of the time that counts
        share: f64,
        /// share of a CPU that the accesses have lost
        lost: f64,
        /// times that counting began
        begun: u32,
    }

    /// A minute with `calls` until a time, in ns. There are no snapshots, which may be hours apart.
    fn minute(calls: impl Fn(u64) -> u64) -> Minute {
        let (mut now, end) = (Nanos(1), Nanos(60 * SECOND + 1));
        let mut turns = SamplingSlices::begin(now);
        let mut since = None;
        let (mut counted, mut lost, mut begun) = (Duration::ZERO, Duration::ZERO, 0);
        let mut add = |turns: &mut SamplingSlices, since: Nanos, now: Nanos| {
            let (time, calls) = (now.since(since), calls(now.0) - calls(since.0));
            counted += time;
            lost += SamplingSlices::lost(calls);
            turns.set_share(calls, time, now);
        };
        while now < end {
            if since.is_some() && turns.is_check_due(now) {
                add(&mut turns, since.replace(now).unwrap(), now);
            }
            match (turns.is_on(now), since) {
                (true, None) => (since, begun) = (Some(now), begun + 1),
                (false, Some(on)) => {
                    add(&mut turns, on, now);
                    since = None;
                }
                _ => {}
            }
            let next = turns.next(now);
            assert!(next > now);
            now = next;
        }
        let share = |time: Duration| time.as_secs_f64() / 60.0;
        Minute { share: share(counted), lost: share(lost), begun }
    }

    /// A listing delayed the begin of a turn, and its rate was not checked until its end.
    #[test]
    fn a_turn_that_begins_late_is_checked_soon() {
        let ms = Duration::from_millis;
        let mut turns = SamplingSlices::begin(Nanos(1));
        turns.set_share(278, ms(10), Nanos(1) + ms(10));
        assert!((0.85..0.95).contains(&turns.share), "{}", turns.share);
        let _ = turns.is_on(Nanos(1) + TURN_LENGTH);
        let late = Nanos(1) + TURN_LENGTH + ms(200);
        assert!(turns.is_on(late));
        turns.begun(late);
        assert_eq!(turns.next(late), late + RATE_CHECK_INTERVAL);
    }

    #[test]
    fn a_lasting_turn_counts_all() {
        let mut turns = SamplingSlices::lasting(Nanos(1));
        for ms in 0..3000 {
            let now = Nanos(1 + ms * 1_000_000);
            turns.set_share(1_000_000, Duration::from_millis(1), now);
            assert!(turns.is_on(now), "{ms} ms");
        }
    }

    #[test]
    fn the_cost_to_accesses_is_bounded() {
        let at_rate = |per_second: u64| minute(|ns| ns * per_second / SECOND);
        let few = at_rate(20_000);
        assert!(few.share > 0.98 && few.begun < 5, "{} {}", few.share, few.begun);
        for per_second in [200_000, 1_000_000, 5_000_000] {
            let Minute { share, lost, begun } = at_rate(per_second);
            assert!(lost > MAX_LOST_SHARE * 0.9 && begun <= 122, "{per_second} {lost} {begun}");
            assert!(lost < MAX_LOST_SHARE * 1.1 || share < 0.009, "{per_second} {lost}");
        }
    }

    #[test]
    fn a_pause_does_not_make_later_accesses_expensive() {
        // A million accesses per second, after a pause of 20 s.
        let once = minute(|ns| ns.saturating_sub(20 * SECOND) / 1000);
        assert!(
            once.share > 0.3 && once.lost < MAX_LOST_SHARE * 1.2,
            "{} {}",
            once.share,
            once.lost
        );
        // They pause again and again, for as long as they last.
        for ms in [50, 500, 1500, 5000] {
            let length = ms * 1_000_000;
            let calls =
                |ns: u64| (ns / (2 * length) * length + (ns % (2 * length)).min(length)) / 1000;
            let Minute { lost, .. } = minute(calls);
            assert!(lost < MAX_LOST_SHARE * 2.0, "{ms} ms: {lost}");
        }
    }
}
