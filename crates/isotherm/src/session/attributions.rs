//! Attributions of the watched processes (user, control group, name) and their memory that is not resident. The
//! processes are read in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use isotherm_core::{Attribution, Nanos, TargetId};
use isotherm_linux::{Hold, attribution, sys};
use isotherm_record::TargetInfo;

use super::MAX_LEFT_GROUPS;
use crate::ROOT;
use crate::follow::Follower;
use crate::pace::{Pace, PaceLimits, START_SLACK, WorkStart};

/// Minimum time between two readings of a process,
const ROUND: Duration = Duration::from_secs(1);
/// which grows up to this for a process that does not change.
const STEADY_INTERVAL: Duration = Duration::from_secs(4);
/// Pace from one turn to the next.
const ATTRIBUTION_PACE: PaceLimits =
    PaceLimits { cpu_divisor: 2000, min_pause: Duration::ZERO, max_pause: Duration::from_secs(5) };
/// Number of processes read per turn, and number of new processes read at once.
const MAX_AT_ONCE: usize = 8;
const NEW_AT_ONCE: usize = 64;

/// The last reading of each process.
#[derive(Default)]
pub struct Attributions {
    /// targets that were read once, or that could not be read
    met: BTreeSet<TargetId>,
    /// processes still to be read in this round
    round: VecDeque<(i32, TargetId)>,
    /// earliest start of the next round
    next_round: Nanos,
    pace: Pace,
    last: BTreeMap<TargetId, Attribution>,
    /// until when not to read targets that were unchanged at their last reading
    steady_until: BTreeMap<TargetId, Nanos>,
    /// pages that the processes have waited for since they are watched
    refaults: u64,
    /// the same for each control group, including the groups below it
    refaults_in: BTreeMap<String, u64>,
}

impl Attributions {
    /// Reads new processes, and those whose turn it is; returns the readings.
    pub fn read(&mut self, who: &Follower, hold: &dyn Hold) -> Vec<Attribution> {
        let mut new = Vec::new();
        if self.met.len() < who.nr_processes() {
            let not_met = who.processes().filter(|(_, target)| !self.met.contains(target));
            new.extend(not_met.take(NEW_AT_ONCE));
        }
        self.met.extend(new.iter().map(|(_, target)| *target));
        // Attaching the new processes has cost far more than reading them.
        let mut read = self.read_these(new, hold);
        let begin = sys::monotonic();
        if begin < self.due() {
            return read;
        }
        if self.round.is_empty() {
            self.round = who.processes().filter(|(_, t)| !self.is_steady(*t, begin)).collect();
            self.next_round = begin + ROUND;
        }
        let turn = self.round.drain(..MAX_AT_ONCE.min(self.round.len())).collect();
        let begun = WorkStart::now();
        read.extend(self.read_these(turn, hold));
        self.pace.pause(&begun, &ATTRIBUTION_PACE);
        read
    }

    /// When the next turn is due.
    fn due(&self) -> Nanos {
        let due = self.pace.due();
        if self.round.is_empty() { due.max(self.next_round) } else { due }
    }

    /// When to read at the latest; `None` if there is no process. If there are new processes, at once.
    pub fn by(&self, who: &Follower) -> Option<Nanos> {
        let all_met = self.met.len() >= who.nr_processes();
        (who.nr_processes() > 0).then(|| if all_met { self.due() + START_SLACK } else { Nanos(0) })
    }

    fn read_these(&mut self, these: Vec<(i32, TargetId)>, hold: &dyn Hold) -> Vec<Attribution> {
        let at = sys::monotonic();
        let of = |(pid, target)| attribution(ROOT.as_ref(), pid, target, at).ok();
        // If the process is still alive afterwards, the reading belongs to it and not to a later process with
        // the same pid.
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

    /// A process that is unchanged is read again after twice the time since its last reading.
    fn settle(&mut self, a: &Attribution) {
        let same = |last: &&Attribution| Attribution { at: last.at, ..a.clone() } == **last;
        match self.last.get(&a.target).filter(same) {
            Some(last) => {
                let pause = (a.at.since(last.at) * 2).clamp(ROUND, STEADY_INTERVAL);
                self.steady_until.insert(a.target, a.at + pause);
            }
            None => _ = self.steady_until.remove(&a.target),
        }
    }

    /// Reads these processes again at once, because they have become other programs.
    pub fn read_anew(&mut self, renamed: &[TargetInfo]) {
        renamed.iter().for_each(|fact| {
            self.met.remove(&fact.id);
        });
    }

    /// Forgets targets that have ended.
    pub fn forget(&mut self, ended: &[TargetId]) {
        for target in ended {
            self.last.remove(target);
            self.steady_until.remove(target);
            self.met.remove(target);
        }
        if self.refaults_in.len() > self.last.len() + MAX_LEFT_GROUPS {
            let lived_in: BTreeSet<&str> = self.last.values().flat_map(|a| a.groups()).collect();
            self.refaults_in.retain(|path, _| lived_in.contains(&**path));
        }
    }

    /// Adds the refaults since the last reading.
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

    /// Pages that processes have waited for since they are watched.
    pub fn refaults(&self) -> u64 {
        self.refaults
    }

    /// The same for a control group, including the groups below it.
    pub fn refaults_in(&self, path: &str) -> u64 {
        self.refaults_in.get(path).copied().unwrap_or_default()
    }

    /// The last reading of `target`.
    pub fn of(&self, target: TargetId) -> Option<&Attribution> {
        self.last.get(&target)
    }
}
