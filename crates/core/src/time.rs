//! Points in time on a source's own monotonic clock.

use std::ops::Add;
use std::time::Duration;

/// Monitors store times in ms, in 32 bits. Soon after a clock has reached this limit, its origin moves.
pub(crate) const MAX_CLOCK_MS: u32 = 1 << 31;

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

    /// Moves the origin of a clock in ms forward if the clock has reached 2^31 ms at `now`. Returns the number of ms to
    /// subtract from all times of this clock; older times become 0. Therefore ages are exact up to 18 days.
    #[must_use]
    pub fn move_origin(&mut self, now: Nanos) -> Option<u32> {
        let off = MAX_CLOCK_MS / 4;
        let is_due = now.since(*self) >= Duration::from_millis(MAX_CLOCK_MS.into());
        is_due.then(|| {
            *self = *self + Duration::from_millis(off.into());
            off
        })
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    fn add(self, d: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}
