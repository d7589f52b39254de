//! Decides when to give up a guest. A slow machine must not affect that: only the CPU time of the emulator
//! and the heartbeat of the guest count, never wall time.

use std::time::Duration;

/// The emulator may use this much CPU time for each second that the script has by the guest's clock. An
/// emulated second costs 0.5 to 1.5 s of CPU time here; the guest itself ends a script that takes too long.
const CPU_PER_SECOND: u32 = 20;

/// Maximum CPU time without a heartbeat, including booting, which usually takes 5 s (with systemd 30 s). The
/// guest sends one heartbeat per second of its clock.
pub const SILENCE: Duration = Duration::from_secs(300);

/// An emulator that uses no CPU time for this long is stuck. A guest without work jumps to its next timer at
/// once, so a working emulator is never idle. A CPU that is busy with other processes gives every process
/// some time long before that.
pub const STANDSTILL: Duration = Duration::from_secs(600);

/// Maximum time between two samples that counts as standstill. After a longer time, this program itself stood
/// still.
const MAX_SAMPLE_GAP: Duration = Duration::from_secs(1);

/// The state of a running emulator.
#[derive(Debug, Clone, Copy)]
pub struct EmulatorState {
    /// wall time since its start
    pub elapsed: Duration,
    /// CPU time of all its threads
    pub cpu: Duration,
    /// heartbeats so far
    pub beats: u64,
}

/// Follows an emulator by samples.
#[derive(Debug)]
pub struct EmulatorWatch {
    /// maximum CPU time
    limit: Duration,
    /// maximum CPU time without a heartbeat
    silence: Duration,
    last: EmulatorState,
    /// time for which it has used no CPU time
    still: Duration,
    /// the sample with the last heartbeat
    beat: EmulatorState,
}

impl EmulatorWatch {
    /// For a guest whose script has `timeout` by the guest's clock, and `silence` of CPU time without a
    /// heartbeat.
    pub fn new(timeout: Duration, silence: Duration) -> Self {
        let begin = EmulatorState { elapsed: Duration::ZERO, cpu: Duration::ZERO, beats: 0 };
        let limit = timeout * CPU_PER_SECOND + silence;
        EmulatorWatch { limit, silence, last: begin, still: Duration::ZERO, beat: begin }
    }

    /// The reason to end the emulator, if there is one.
    pub fn verdict(&mut self, sample: EmulatorState) -> Option<String> {
        let step = sample.elapsed.saturating_sub(self.last.elapsed).min(MAX_SAMPLE_GAP);
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

    /// The second at which it is ended, of `seconds`, with the reason. `each` returns CPU time and heartbeats
    /// at a second.
    fn ended(seconds: u64, each: impl Fn(u64) -> (f64, u64)) -> Option<(u64, String)> {
        let mut watch = EmulatorWatch::new(TIMEOUT, SILENCE);
        (0..seconds).find_map(|second| {
            let (cpu, beats) = each(second);
            let (elapsed, cpu) = (Duration::from_secs(second), Duration::from_secs_f64(cpu));
            Some((second, watch.verdict(EmulatorState { elapsed, cpu, beats })?))
        })
    }

    #[test]
    fn a_slow_machine_ends_no_guest() {
        // One hundredth of a CPU, while an emulated second takes 1.5 s: 120 of them.
        assert_eq!(ended(120 * 150, |s| (s as f64 / 100.0, s / 150)), None);
        // No CPU time in nine of every ten minutes.
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
        let mut watch = EmulatorWatch::new(TIMEOUT, SILENCE);
        let at = |seconds| EmulatorState {
            elapsed: Duration::from_secs(seconds),
            cpu: MAX_SAMPLE_GAP,
            beats: 1,
        };
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
