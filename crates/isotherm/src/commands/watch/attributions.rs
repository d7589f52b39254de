//! Whose the processes are that are watched, and what of them is not in memory, read by turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use isotherm_core::{Attribution, Nanos, TargetId};
use isotherm_linux::{Hold, attribution, sys};

use super::{Follower, ROOT};

/// Each process is read once in this time at most.
const ROUND: Duration = Duration::from_secs(1);
/// Reading takes at most one part in so many of the time.
const SHARE: u32 = 500;
/// Processes read at once, of those that have been before, and of others.
const AT_ONCE: usize = 8;
const NEW_AT_ONCE: usize = 64;
/// Control groups whose refaults are kept while nobody is in them.
const MOST_LEFT: usize = 1024;

/// What was read last of each process.
#[derive(Default)]
pub struct Attributions {
    /// who is still to be read in this round
    round: VecDeque<(i32, TargetId)>,
    /// not before
    next_round: Nanos,
    next: Nanos,
    last: BTreeMap<TargetId, Attribution>,
    /// pages waited for since the start
    refaults: u64,
    /// the same in each control group, with those below it
    refaults_in: BTreeMap<String, u64>,
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
        // Who has come is told of at once, however many there are.
        let new = who.processes().filter(|(_, target)| !self.last.contains_key(target));
        let mut turn: Vec<_> = new.take(NEW_AT_ONCE).collect();
        turn.extend(self.round.drain(..AT_ONCE.min(self.round.len())));
        let of = |(pid, target)| attribution(ROOT.as_ref(), pid, target, begin).ok();
        // Whose process lives afterwards was read, and nobody else.
        let read: Vec<_> =
            turn.into_iter().filter_map(of).filter(|a| hold.is_alive(a.target)).collect();
        read.iter().for_each(|a| self.count(a));
        self.last.extend(read.iter().map(|a| (a.target, a.clone())));
        self.next = begin + sys::monotonic().since(begin) * SHARE;
        read
    }

    /// Those that have ended.
    pub fn forget(&mut self, ended: &[TargetId]) {
        ended.iter().for_each(|target| _ = self.last.remove(target));
        if self.refaults_in.len() > self.last.len() + MOST_LEFT {
            let lived_in: BTreeSet<&str> = self.last.values().flat_map(|a| a.groups()).collect();
            self.refaults_in.retain(|path, _| lived_in.contains(&**path));
        }
    }

    /// Adds what was waited for since it was read before.
    fn count(&mut self, a: &Attribution) {
        let before = self.last.get(&a.target).map_or(a.major_faults, |b| b.major_faults);
        let faults = a.major_faults.saturating_sub(before);
        if faults > 0 {
            self.refaults += faults;
            for path in a.groups() {
                *self.refaults_in.entry(path.to_owned()).or_default() += faults;
            }
        }
    }

    /// Pages that processes had to wait for since they have been watched.
    pub fn refaults(&self) -> u64 {
        self.refaults
    }

    /// The same in a control group, with those below it.
    pub fn refaults_in(&self, path: &str) -> u64 {
        self.refaults_in.get(path).copied().unwrap_or_default()
    }

    /// What was read last of `target`.
    pub fn of(&self, target: TargetId) -> Option<&Attribution> {
        self.last.get(&target)
    }
}
