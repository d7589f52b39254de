//! Whose the processes are that are watched, and what of them is not in memory, read by turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use isotherm_core::{Attribution, Nanos, TargetId};
use isotherm_linux::{Hold, attribution, sys};
use isotherm_record::TargetFact;

use crate::ROOT;
use crate::follow::Follower;
use crate::pace::{Begun, Pace, SLACK, Terms};

/// Each process is read once in this time at most,
const ROUND: Duration = Duration::from_secs(1);
/// and one of which nothing changes less often, up to this.
const STEADY: Duration = Duration::from_secs(4);
/// From one turn to the next.
const TURNS: Terms = Terms { share: 2000, least: Duration::ZERO, most: Duration::from_secs(5) };
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
    pace: Pace,
    last: BTreeMap<TargetId, Attribution>,
    /// of those, until when to leave alone who was the same when it was read again
    steady_until: BTreeMap<TargetId, Nanos>,
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
        if begin < self.due() {
            return read;
        }
        if self.round.is_empty() {
            self.round = who.processes().filter(|(_, t)| !self.is_steady(*t, begin)).collect();
            self.next_round = begin + ROUND;
        }
        let turn = self.round.drain(..AT_ONCE.min(self.round.len())).collect();
        let begun = Begun::now();
        read.extend(self.read_these(turn, hold));
        self.pace.pause(&begun, &TURNS);
        read
    }

    /// When it is somebody's turn.
    fn due(&self) -> Nanos {
        let due = self.pace.due();
        if self.round.is_empty() { due.max(self.next_round) } else { due }
    }

    /// When to read at the latest; `None` if there is nobody. At once, if somebody has come.
    pub fn by(&self, who: &Follower) -> Option<Nanos> {
        let all_met = self.met.len() >= who.nr_processes();
        (who.nr_processes() > 0).then(|| if all_met { self.due() + SLACK } else { Nanos(0) })
    }

    fn read_these(&mut self, these: Vec<(i32, TargetId)>, hold: &dyn Hold) -> Vec<Attribution> {
        let at = sys::monotonic();
        let of = |(pid, target)| attribution(ROOT.as_ref(), pid, target, at).ok();
        // Whose process lives afterwards was read, and nobody else.
        let these = these.into_iter().filter_map(of);
        let read: Vec<Attribution> = these.filter(|a| hold.is_alive(a.target)).collect();
        for a in &read {
            self.count(a);
            self.settle(a);
            self.last.insert(a.target, a.clone());
        }
        read
    }

    fn is_steady(&self, target: TargetId, now: Nanos) -> bool {
        self.steady_until.get(&target).is_some_and(|&until| now < until)
    }

    /// Of whom nothing has changed since it was last read, it is asked after twice that time again.
    fn settle(&mut self, a: &Attribution) {
        let same = |last: &&Attribution| Attribution { at: last.at, ..a.clone() } == **last;
        match self.last.get(&a.target).filter(same) {
            Some(last) => {
                let pause = (a.at.since(last.at) * 2).clamp(ROUND, STEADY);
                self.steady_until.insert(a.target, a.at + pause);
            }
            None => _ = self.steady_until.remove(&a.target),
        }
    }

    /// Reads of these at once, as they are other programs now.
    pub fn read_anew(&mut self, renamed: &[TargetFact]) {
        renamed.iter().for_each(|fact| {
            self.met.remove(&fact.id);
        });
    }

    /// Those that have ended.
    pub fn forget(&mut self, ended: &[TargetId]) {
        for target in ended {
            self.last.remove(target);
            self.steady_until.remove(target);
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
