//! Pacing of work that has no exact deadline.

use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys;

/// Work starts at most this long after it is due.
pub const START_SLACK: Duration = Duration::from_millis(200);

/// Limits on how often work is done.
#[derive(Debug)]
pub struct PaceLimits {
    /// the work uses at most 1/`share` of the CPU time of a thread
    pub cpu_divisor: u32,
    /// minimum pause
    pub min_pause: Duration,
    /// maximum pause, however long the work is
    pub max_pause: Duration,
}

/// Paces repeated work so that it stays within a share of the time. The work is done on the first occasion
/// after a pause, or at the latest [`START_SLACK`] after that.
#[derive(Debug, Default)]
pub struct Pace {
    next: Nanos,
}

/// The start of a piece of work.
#[derive(Debug)]
pub struct WorkStart {
    pub at: Nanos,
    /// CPU time, because in wall time a moment in which other processes had the CPU would cause a pause of many
    /// seconds.
    cpu: Duration,
}

impl WorkStart {
    pub fn now() -> Self {
        WorkStart { at: sys::monotonic(), cpu: sys::thread_cpu() }
    }
}

impl Pace {
    /// When the pause ends.
    pub fn due(&self) -> Nanos {
        self.next
    }

    /// Sets the pause after work that started at `begun` and ends now.
    pub fn pause(&mut self, begun: &WorkStart, terms: &PaceLimits) {
        self.next = begun.at + terms.pause(sys::thread_cpu().saturating_sub(begun.cpu));
    }
}

impl PaceLimits {
    /// The pause after work that used this much CPU time.
    fn pause(&self, worked: Duration) -> Duration {
        worked.saturating_mul(self.cpu_divisor).clamp(self.min_pause, self.max_pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_follows_from_the_work() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let terms = PaceLimits { cpu_divisor: 1000, min_pause: ms(200), max_pause: s(5) };
        assert_eq!(terms.pause(Duration::from_micros(10)), ms(200));
        assert_eq!(terms.pause(ms(3)), s(3));
        assert_eq!(terms.pause(ms(30)), s(5));
        let (mut pace, begun) = (Pace::default(), WorkStart::now());
        assert!(pace.due() <= begun.at);
        pace.pause(&begun, &terms);
        assert!(pace.due() >= begun.at + ms(200) && pace.due() <= begun.at + s(5));
    }
}
