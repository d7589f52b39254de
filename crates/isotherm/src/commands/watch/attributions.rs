//! Whose the processes are that are watched, and what of them is not in memory, read by turns.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use isotherm_core::{Attribution, Nanos, TargetId};
use isotherm_linux::{Hold, attribution, sys};

use super::{Follower, ROOT};

/// Each process is read once in this time at most.
const ROUND: Duration = Duration::from_secs(1);
/// Reading takes at most one part in so many of the time.
const SHARE: u32 = 500;
/// Processes read at once.
const AT_ONCE: usize = 8;

/// What was read last of each process.
#[derive(Default)]
pub struct Attributions {
    /// who is still to be read in this round
    round: VecDeque<(i32, TargetId)>,
    /// not before
    next_round: Nanos,
    next: Nanos,
    last: BTreeMap<TargetId, Attribution>,
}

impl Attributions {
    /// Reads whose turn it is, if it is time; what was read.
    pub fn read(&mut self, who: &Follower, hold: &dyn Hold) -> Vec<Attribution> {
        let begin = sys::monotonic();
        if begin < self.next {
            return Vec::new();
        }
        if self.round.is_empty() && begin >= self.next_round {
            self.round = who.processes().collect();
            self.next_round = begin + ROUND;
        }
        let turn = self.round.drain(..AT_ONCE.min(self.round.len()));
        let of = |(pid, target)| attribution(ROOT.as_ref(), pid, target, begin).ok();
        // Whose process lives afterwards was read, and nobody else.
        let read: Vec<_> = turn.filter_map(of).filter(|a| hold.is_alive(a.target)).collect();
        self.last.extend(read.iter().map(|a| (a.target, a.clone())));
        self.next = begin + sys::monotonic().since(begin) * SHARE;
        read
    }

    /// Those that have ended.
    pub fn forget(&mut self, ended: &[TargetId]) {
        ended.iter().for_each(|target| _ = self.last.remove(target));
    }

    /// What was read last of `target`.
    pub fn of(&self, target: TargetId) -> Option<&Attribution> {
        self.last.get(&target)
    }
}
