//! Which snapshots of a record are looked at. This depends only on their times, so that a reader may be ahead of
//! the player.

use std::collections::VecDeque;
use std::time::Duration;

use isotherm_core::Nanos;

/// Rows of page ages come each minute at least: with the next one it is known what was touched.
const LOOK_AHEAD: Duration = Duration::from_secs(65);
/// Shortest time between two looks at the record.
const MIN_STEP: Duration = Duration::from_secs(1);
/// Looks per minimum age: at first as many as `reclaim --pages` has, at least a few.
const LOOKS_PER_MIN_AGE: u32 = 30;
const MIN_LOOKS: u32 = 4;
/// Longest time between two looks without a minimum age, and with a short one.
const MAX_STEP: Duration = Duration::from_secs(30);
const MAX_STEP_OF_SHORT_AGE: Duration = Duration::from_secs(15);
/// Snapshots do not come at exact times: a look is early by at most this.
const MAX_JITTER: Duration = Duration::from_millis(500);
/// Looks until the time between two of them is doubled.
const LOOKS_PER_DOUBLING: u32 = 4096;

/// The looks of one setting.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    step: Duration,
    longest: Duration,
    /// looks at this step
    done: u32,
    due: Nanos,
}

impl Looks {
    /// The looks of a setting that demands an age; zero if it demands none.
    pub fn new(min_age: Duration) -> Self {
        let least = |looks: u32| (min_age / looks).max(MIN_STEP);
        let longest = match min_age.is_zero() {
            true => MAX_STEP,
            false => least(MIN_LOOKS).max(MAX_STEP_OF_SHORT_AGE),
        };
        Looks { step: least(LOOKS_PER_MIN_AGE).min(longest), longest, done: 0, due: Nanos(0) }
    }

    /// Time between two looks.
    pub fn step(&self) -> Duration {
        self.step
    }

    /// Whether a look is due at the snapshot that ends at `end`.
    pub fn look(&mut self, end: Nanos) -> bool {
        if end < self.due {
            return false;
        }
        self.due = end + jittered(self.step);
        if self.done >= LOOKS_PER_DOUBLING && self.step < self.longest {
            (self.step, self.done) = ((self.step * 2).min(self.longest), 0);
        }
        self.done += 1;
        true
    }
}

/// The least time between two looks.
pub(super) fn jittered(step: Duration) -> Duration {
    step - (step / 8).min(MAX_JITTER)
}

/// Whether the snapshot that ends at `end` need not wait for later ages, because of one that ends at `now`.
pub(super) fn is_ripe(end: Nanos, now: Nanos) -> bool {
    end + LOOK_AHEAD <= now
}

/// Which snapshots a [`Player`](super::Player) needs.
///
/// ```
/// # use std::time::Duration;
/// # use isotherm_core::Nanos;
/// # use isotherm_sim::whatif::{DelayModel, Player, Setting, SettingPolicy, Surroundings};
/// # fn main() -> Result<(), isotherm_sim::whatif::WhatIfError> {
/// let limit = Setting { name: "1G".into(), policy: SettingPolicy::Limit(1 << 30) };
/// let player = Player::new(vec![limit], DelayModel::default(), &Surroundings::default())?;
/// let mut selector = player.selector();
/// assert!(selector.push(Nanos(5_000_000_000)) <= Nanos(6_000_000_000), "a limit is looked at each second");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SnapshotSelector {
    looks: Vec<Looks>,
    waiting: VecDeque<Nanos>,
}

impl SnapshotSelector {
    pub(super) fn new(looks: Vec<Looks>) -> Self {
        SnapshotSelector { looks, waiting: VecDeque::new() }
    }

    /// Notes that the snapshot that ends at `end` is pushed. Snapshots that end before the returned time, and have
    /// no ages, need not be pushed.
    pub fn push(&mut self, end: Nanos) -> Nanos {
        self.waiting.push_back(end);
        while let Some(first) = self.waiting.front().copied().filter(|first| is_ripe(*first, end)) {
            self.waiting.pop_front();
            self.looks.iter_mut().for_each(|looks| _ = looks.look(first));
        }
        let step = self.looks.iter().map(|looks| jittered(looks.step)).min();
        end + step.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Snapshots come each second, and rows of ages each minute. With steps of half a minute, every second look is at a
    /// snapshot that is read for its ages anyway.
    #[test]
    fn looks_are_hardly_early() {
        for (step, expected) in [(1, 1), (4, 4), (30, 30)] {
            let step = Duration::from_secs(step);
            let mut looks = Looks { step, longest: step, done: 0, due: Nanos(0) };
            let at = |s: u64| Nanos(s * 1_000_000_000);
            let looked: Vec<u64> = (1..=600).filter(|s| looks.look(at(*s))).collect();
            assert!(looked.windows(2).all(|pair| pair[1] - pair[0] == expected), "{looked:?}");
        }
    }
}
