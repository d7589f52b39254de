//! When a guest is given up. A slow machine must not decide that: what counts is the CPU time that the
//! emulator has used, and the heartbeat that comes out of the guest, never the time on the wall.

use std::time::Duration;

/// The emulator may use this much CPU time for each second that the script has by the guest's clock. An
/// emulated second costs 0.5 to 1.5 s of CPU time here; the guest itself ends a script that takes too long.
const CPU_PER_SECOND: u32 = 20;

/// CPU time for which no heartbeat may be missing, booting included, which usually takes 5 s (with systemd
/// 30 s). The heart beats once a second by the guest's clock.
pub const SILENCE: Duration = Duration::from_secs(300);

/// An emulator that uses no CPU time at all for this long is stuck: a guest without work passes the time
/// to its next timer at once, so that the emulator is never idle. A CPU that others keep busy gives
/// some of its time to everybody long before.
pub const STANDSTILL: Duration = Duration::from_secs(600);

/// The longest time between two samples that counts as standstill: after a longer one, those who take samples
/// stood still themselves.
const STEP: Duration = Duration::from_secs(1);

/// What is known of an emulator that runs.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// since it was started, on the wall
    pub elapsed: Duration,
    /// CPU time of all its threads
    pub cpu: Duration,
    /// heartbeats so far
    pub beats: u64,
}

/// Follows an emulator by its samples.
#[derive(Debug)]
pub struct Watch {
    /// CPU time in all
    limit: Duration,
    /// CPU time without a heartbeat
    silence: Duration,
    last: Sample,
    /// how long it has used no CPU time
    still: Duration,
    /// when the last heartbeat was found
    beat: Sample,
}

impl Watch {
    /// For a guest whose script has `timeout` by the guest's clock, and which may use CPU time of `silence`
    /// without a heartbeat.
    #[must_use]
    pub fn new(timeout: Duration, silence: Duration) -> Self {
        let begin = Sample { elapsed: Duration::ZERO, cpu: Duration::ZERO, beats: 0 };
        let limit = timeout * CPU_PER_SECOND + silence;
        Watch { limit, silence, last: begin, still: Duration::ZERO, beat: begin }
    }

    /// Why the emulator is to be ended, if it is.
    pub fn verdict(&mut self, sample: Sample) -> Option<String> {
        let step = sample.elapsed.saturating_sub(self.last.elapsed).min(STEP);
        self.still = if sample.cpu > self.last.cpu { Duration::ZERO } else { self.still + step };
        self.last = sample;
        if sample.beats > self.beat.beats {
            self.beat = sample;
        }
        let silent = sample.cpu.saturating_sub(self.beat.cpu);
        let seconds = |time: Duration| time.as_secs();
        if sample.cpu > self.limit {
            Some(format!(
                "it has not ended after {} s of CPU time and {} heartbeats: a limit of the emulator",
                seconds(sample.cpu),
                sample.beats
            ))
        } else if silent > self.silence {
            Some(format!(
                "it hangs: no heartbeat while the emulator used {} s of CPU time, after {} heartbeats",
                seconds(silent),
                sample.beats
            ))
        } else if self.still > STANDSTILL {
            Some(format!("its emulator hangs: it used no CPU time for {} s", seconds(self.still)))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(120);

    const FOR_EVER: u64 = 100_000;

    /// The second at which it is ended, of so many, and why: `each` tells CPU time and heartbeats at a second.
    fn ended(seconds: u64, each: impl Fn(u64) -> (f64, u64)) -> Option<(u64, String)> {
        let mut watch = Watch::new(TIMEOUT, SILENCE);
        (0..seconds).find_map(|second| {
            let (cpu, beats) = each(second);
            let (elapsed, cpu) = (Duration::from_secs(second), Duration::from_secs_f64(cpu));
            Some((second, watch.verdict(Sample { elapsed, cpu, beats })?))
        })
    }

    #[test]
    fn a_slow_machine_ends_no_guest() {
        // A hundredth of a CPU, of which an emulated second takes 1.5 s: 120 of them.
        assert_eq!(ended(120 * 150, |s| (s as f64 / 100.0, s / 150)), None);
        // Nothing for nine minutes of each ten.
        assert_eq!(ended(FOR_EVER, |s| ((s / 540) as f64, s / 540)), None);
    }

    #[test]
    fn a_guest_without_a_heartbeat_is_ended_by_cpu_time() {
        let (quick, why) = ended(FOR_EVER, |s| (s as f64, s.min(10))).unwrap();
        assert!(why.contains("no heartbeat") && why.contains("after 10 heartbeats"), "{why}");
        assert_eq!(quick, 10 + SILENCE.as_secs() + 1);
        let (slow, _) = ended(FOR_EVER, |s| (s as f64 / 4.0, (s / 4).min(10))).unwrap();
        assert!((4 * quick - 8..4 * quick).contains(&slow), "{slow}: a quarter as fast");
    }

    #[test]
    fn a_guest_that_lives_for_ever_is_ended() {
        let (at, why) = ended(FOR_EVER, |s| (s as f64, s)).unwrap();
        assert!(why.contains("has not ended"), "{why}");
        assert_eq!(at, 120 * 20 + SILENCE.as_secs() + 1);
    }

    #[test]
    fn a_pause_of_both_is_no_standstill() {
        let mut watch = Watch::new(TIMEOUT, SILENCE);
        let at = |seconds| Sample { elapsed: Duration::from_secs(seconds), cpu: STEP, beats: 1 };
        assert_eq!(watch.verdict(at(1)), None);
        assert_eq!(watch.verdict(at(5000)), None);
    }

    #[test]
    fn an_emulator_that_stands_still_is_ended() {
        let (at, why) = ended(FOR_EVER, |s| (s.min(50) as f64, s.min(50))).unwrap();
        assert!(why.contains("no CPU time"), "{why}");
        assert_eq!(at, 50 + STANDSTILL.as_secs() + 1);
    }
}
