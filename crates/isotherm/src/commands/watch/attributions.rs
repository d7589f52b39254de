//! Whose the processes are that are watched, and what of them is not in memory, read by turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use isotherm_core::{Attribution, Nanos, TargetId};
use isotherm_linux::{Hold, attribution, sys};

use super::{Follower, ROOT};

/// Each process is read once in this time at most.
const ROUND: Duration = Duration::from_secs(1);
/// Reading takes at most one part in so many of the time, but goes on once in that time.
const SHARE: u32 = 2000;
const LONGEST: Duration = Duration::from_secs(5);
/// Processes read at once, by turns, and when they have come.
const AT_ONCE: usize = 8;
const NEW_AT_ONCE: usize = 64;
/// Control groups whose refaults are kept while nobody is in them.
const MOST_LEFT: usize = 1024;

/// What was read last of each process.
#[derive(Default)]
pub struct Attributions {
    /// who has been read once, or could not be
    met: BTreeSet<TargetId>,
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
    /// Reads who has come, and whose turn it is, if it is time; what was read.
    pub fn read(&mut self, who: &Follower, hold: &dyn Hold) -> Vec<Attribution> {
        let mut new = Vec::new();
        if self.met.len() < who.nr_processes() {
            let not_met = who.processes().filter(|(_, target)| !self.met.contains(target));
            new.extend(not_met.take(NEW_AT_ONCE));
        }
        self.met.extend(new.iter().map(|(_, target)| *target));
        // To take hold of them has cost far more.
        let mut read = self.read_these(new, hold);
        let begin = sys::monotonic();
        if begin < self.next {
            return read;
        }
        if self.round.is_empty() && begin >= self.next_round {
            self.round = who.processes().collect();
            self.next_round = begin + ROUND;
        }
        let turn = self.round.drain(..AT_ONCE.min(self.round.len())).collect();
        // Not by the wall: a moment in which others had the CPU would make a pause of many seconds.
        let worked = sys::thread_cpu();
        read.extend(self.read_these(turn, hold));
        let worked = sys::thread_cpu().saturating_sub(worked);
        self.next = begin + (worked * SHARE).min(LONGEST);
        read
    }

    fn read_these(&mut self, these: Vec<(i32, TargetId)>, hold: &dyn Hold) -> Vec<Attribution> {
        let at = sys::monotonic();
        let of = |(pid, target)| attribution(ROOT.as_ref(), pid, target, at).ok();
        // Whose process lives afterwards was read, and nobody else.
        let these = these.into_iter().filter_map(of);
        let read: Vec<Attribution> = these.filter(|a| hold.is_alive(a.target)).collect();
        for a in &read {
            self.count(a);
            self.last.insert(a.target, a.clone());
        }
        read
    }

    /// Those that have ended.
    pub fn forget(&mut self, ended: &[TargetId]) {
        for target in ended {
            self.last.remove(target);
            self.met.remove(target);
        }
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
