//! When to do what need not be done on time.

use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys;

/// Nothing is later than it is due by more than this.
pub const SLACK: Duration = Duration::from_millis(200);

/// How often something may be done.
#[derive(Debug)]
pub struct Terms {
    /// It may take one part in so many of the time.
    pub share: u32,
    /// A pause lasts so long,
    pub least: Duration,
    /// and no longer than that, whatever the work takes.
    pub most: Duration,
}

/// Work that is done over and over within a share of the time: on the first occasion after a pause, or on
/// one of its own if there is none for [`SLACK`].
#[derive(Debug, Default)]
pub struct Pace {
    next: Nanos,
}

/// Work that has begun.
#[derive(Debug)]
pub struct Begun {
    pub at: Nanos,
    /// Not by the wall: a moment in which others had the CPU would make a pause of many seconds.
    cpu: Duration,
}

impl Begun {
    pub fn now() -> Self {
        Begun { at: sys::monotonic(), cpu: sys::thread_cpu() }
    }
}

impl Pace {
    /// When the pause is over.
    pub fn due(&self) -> Nanos {
        self.next
    }

    /// Pauses after work that is done now.
    pub fn pause(&mut self, begun: &Begun, terms: &Terms) {
        self.next = begun.at + terms.pause(sys::thread_cpu().saturating_sub(begun.cpu));
    }
}

impl Terms {
    /// After work of so much CPU time.
    fn pause(&self, worked: Duration) -> Duration {
        worked.saturating_mul(self.share).clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_follows_from_the_work() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let terms = Terms { share: 1000, least: ms(200), most: s(5) };
        assert_eq!(terms.pause(Duration::from_micros(10)), ms(200));
        assert_eq!(terms.pause(ms(3)), s(3));
        assert_eq!(terms.pause(ms(30)), s(5));
        let (mut pace, begun) = (Pace::default(), Begun::now());
        assert!(pace.due() <= begun.at);
        pace.pause(&begun, &terms);
        assert!(pace.due() >= begun.at + ms(200) && pace.due() <= begun.at + s(5));
    }
}
