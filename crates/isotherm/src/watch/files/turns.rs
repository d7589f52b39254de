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
/// The fractional part of the golden ratio: its multiples are spread evenly, so that no periodic work hides.
const GOLDEN: f64 = 0.618_033_988_75;

/// The parts of the present turn.
#[derive(Debug)]
pub struct SamplingSlices {
    number: u32,
    on: Nanos,
    off: Nanos,
    end: Nanos,
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
        SamplingSlices { number: 0, on: now, off, end, share: 0.0, is_lasting: false }
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
        }
        // From the last part of a turn to the first of the next, the programs stay attached.
        self.on <= now && (now < self.off || self.share >= 1.0)
    }

    /// The time at which [`Self::is_on`] may change.
    pub fn next(&self, now: Nanos) -> Nanos {
        [self.on, self.off, self.end].into_iter().filter(|at| *at > now).min().unwrap_or(self.end)
    }

    /// In the last `time` that counted, there were so many calls. Later turns count a suitable part of the time.
    pub fn set_share(&mut self, calls: u64, time: Duration) {
        if self.is_lasting {
            return;
        }
        let per_second = calls as f64 / time.as_secs_f64().max(1e-6);
        self.share = (MAX_LOST_SHARE / (per_second * DELAY.as_secs_f64()).max(1e-9)).min(1.0);
    }

    /// Time that calls have lost.
    pub fn lost(calls: u64) -> Duration {
        DELAY.mul_f64(calls as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of a minute that counts, at this many calls a second, and the number of times it begins.
    fn counted(per_second: u64) -> (f64, u32) {
        let (mut now, end) = (Nanos(1), Nanos(60_000_000_001));
        let mut turns = SamplingSlices::begin(now);
        let (mut counted, mut was_on, mut begun) = (Duration::ZERO, false, 0);
        while now < end {
            let is_on = turns.is_on(now);
            let next = turns.next(now);
            assert!(next > now);
            if is_on {
                let time = next.since(now);
                counted += time;
                begun += u32::from(!was_on);
                turns.set_share((per_second as f64 * time.as_secs_f64()) as u64, time);
            }
            (now, was_on) = (next, is_on);
        }
        (counted.as_secs_f64() / 60.0, begun)
    }

    #[test]
    fn a_lasting_turn_counts_all() {
        let mut turns = SamplingSlices::lasting(Nanos(1));
        for ms in 0..3000 {
            turns.set_share(1_000_000, Duration::from_millis(1));
            assert!(turns.is_on(Nanos(1 + ms * 1_000_000)), "{ms} ms");
        }
    }

    #[test]
    fn the_cost_to_accesses_is_bounded() {
        let (share, begun) = counted(20_000);
        assert!(share > 0.99 && begun < 5, "{share} {begun}");
        for per_second in [200_000, 1_000_000, 5_000_000] {
            let (share, begun) = counted(per_second);
            let lost = share * per_second as f64 * DELAY.as_secs_f64();
            assert!(lost > MAX_LOST_SHARE * 0.9 && begun <= 122, "{per_second} {lost} {begun}");
            assert!(lost < MAX_LOST_SHARE * 1.1 || share < 0.009, "{per_second} {lost}");
        }
    }
}
