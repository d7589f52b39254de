//! Points in time on a source's own monotonic clock.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since a fixed point of the source (boot, start of the simulation). Only differences are
/// meaningful; a difference is a [`Duration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time `d` earlier, or the start of the clock if that is later.
    #[must_use]
    pub fn before(self, d: Duration) -> Nanos {
        Nanos(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    fn add(self, d: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}
