//! How much page cache of a control group the kernel is asked to reclaim.
//!
//! No process maps this memory, so it has no idle ages. The kernel selects it, by its own lists, and counts the
//! pages that are read again. So the request grows while few are read again, and restarts when more are than the
//! objective permits.

use super::aim_step::{AimReason, AimStep, CHOICE_INTERVAL, TARGET_SHARE};
use super::metrics::GroupCache;
use crate::range::PAGE_SIZE;
use crate::time::Nanos;

/// Share of the page cache that is requested in the first minute, and after too much was read again.
const FIRST_SHARE: f64 = 1.0 / 128.0;
/// Maximum share per minute.
const MAX_SHARE: f64 = 1.0 / 16.0;
/// Growth of the share per minute.
const GROWTH: f64 = 1.25;

/// The choice for one control group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CacheAim {
    /// time of the last choice, and the refaults at this time
    decided: Option<(Nanos, u64)>,
    /// share of the page cache to request per minute
    share: f64,
    /// bytes to request per second
    rate: f64,
    /// bytes that may be requested now
    room: f64,
    /// whether any were requested since the last choice
    requested: bool,
}

impl CacheAim {
    /// A choice, if one is due. `share` of the page cache may be read again per minute. The step is without its scheme
    /// and group.
    pub fn decide(&mut self, share: f64, cache: GroupCache, now: Nanos) -> Option<AimStep> {
        let Some((at, refaults)) = self.decided else {
            self.decided = Some((now, cache.refaults));
            return None;
        };
        let time = now.since(at);
        if time < CHOICE_INTERVAL {
            return None;
        }
        let minutes = time.as_secs_f64() / 60.0;
        let returned = cache.refaults.saturating_sub(refaults) as f64 * PAGE_SIZE as f64 / minutes;
        let allowed = cache.bytes as f64 * share;
        let before = self.share;
        let much = returned > allowed;
        let little = returned <= allowed * TARGET_SHARE;
        // Without requests, few refaults prove nothing: the quota may have been exhausted.
        let was_tried = std::mem::take(&mut self.requested) || before == 0.0;
        self.share = if much {
            0.0
        } else if little && was_tried {
            (before * GROWTH).clamp(FIRST_SHARE, MAX_SHARE)
        } else {
            before
        };
        let requested = cache.bytes as f64 * self.share;
        (self.decided, self.rate) = (Some((now, cache.refaults)), requested / 60.0);
        if much {
            self.room = 0.0;
        }
        (self.share != before || much && before > 0.0).then(|| AimStep {
            at: now,
            scheme: "".into(),
            group: None,
            age: None,
            why: if much { AimReason::TooMuchCache } else { AimReason::Cache },
            idle: requested as u64,
            kept: cache.bytes.saturating_sub(requested as u64),
            expected: allowed as u64,
            returned: returned as u64,
        })
    }

    /// Adds the room of the next `seconds`, up to that of a minute. Returns the room in bytes.
    pub fn add_room(&mut self, seconds: f64) -> u64 {
        self.room = (self.room + self.rate * seconds).min(self.rate * 60.0);
        self.room as u64
    }

    /// The bytes that may be requested now.
    pub fn room(&self) -> u64 {
        self.room as u64
    }

    /// Subtracts requested bytes.
    pub fn take(&mut self, bytes: u64) {
        self.room = (self.room - bytes as f64).max(0.0);
        self.requested = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    /// The shares of 1024 MiB that are requested in each minute, if so many pages are read again in the minute before.
    fn shares(refaults: &[u64]) -> Vec<f64> {
        let (mut aim, mut cache) =
            (CacheAim::default(), GroupCache { bytes: 1 << 30, refaults: 7 });
        assert_eq!(aim.decide(0.002, cache, at(0)), None, "the first reading is none of a minute");
        let mut minute = |(i, more): (usize, &u64)| {
            cache.refaults += more;
            aim.decide(0.002, cache, at(60 * (i as u64 + 1)));
            aim.take(MIB);
            aim.share * 128.0
        };
        refaults.iter().enumerate().map(&mut minute).collect()
    }

    #[test]
    fn the_request_grows_while_little_is_read_again() {
        assert_eq!(shares(&[0, 0, 0]), [1.0, 1.25, 1.5625]);
        assert_eq!(shares(&[0; 20])[19], 8.0, "at most a sixteenth");
        // 0.2 % of 1 GiB are 524 pages; it stays where it is between four fifths and all of it.
        assert_eq!(shares(&[0, 500, 400]), [1.0, 1.0, 1.25]);
        assert_eq!(shares(&[0, 0, 600, 0]), [1.0, 1.25, 0.0, 1.0]);
        assert_eq!(shares(&[600, 600]), [0.0, 0.0], "others reclaim too much");
    }

    #[test]
    fn the_request_does_not_grow_while_nothing_is_requested() {
        let mut aim = CacheAim::default();
        let cache = GroupCache { bytes: 1 << 30, refaults: 0 };
        let shares = (0..5).map(|minute| {
            aim.decide(0.002, cache, at(60 * minute));
            aim.share * 128.0
        });
        assert_eq!(shares.collect::<Vec<_>>(), [0.0, 1.0, 1.0, 1.0, 1.0]);
        aim.take(MIB);
        aim.decide(0.002, cache, at(300));
        assert_eq!(aim.share * 128.0, 1.25);
    }

    #[test]
    fn the_room_of_a_minute_is_the_most() {
        let mut aim = CacheAim::default();
        let cache = GroupCache { bytes: 128 * 60 * MIB, refaults: 0 };
        aim.decide(0.002, cache, at(0));
        assert_eq!(aim.add_room(60.0), 0);
        let step = aim.decide(0.002, cache, at(60)).unwrap();
        assert_eq!((step.why, step.idle), (AimReason::Cache, 60 * MIB));
        assert_eq!(aim.add_room(2.0), 2 * MIB);
        aim.take(MIB);
        assert_eq!((aim.room(), aim.add_room(1000.0)), (MIB, 60 * MIB));
        let step = aim.decide(0.002, GroupCache { refaults: 5000, ..cache }, at(120)).unwrap();
        assert_eq!(
            (step.why, step.returned, aim.room()),
            (AimReason::TooMuchCache, 5000 * 4096, 0)
        );
    }
}
