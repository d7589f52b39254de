//! Hot, cold, unknown and swapped memory by control group or process, over time.

mod course;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use isotherm_core::{Attribution, HeatBytes, Nanos, Snapshot, TargetId};

use self::course::Course;
pub use self::rows::{GroupBytes, GroupRow, Groups, TimeBucket};
use crate::basis::{BasisTally, ms};
use crate::filter::{FilterError, Gate, Options};

/// Maximum number of rows; later ones share one row. A limit, because records come from outside.
const MAX_ROWS: usize = 512;
/// Maximum number of parts of the time. Beyond it, each two parts are merged.
const MAX_PARTS: u32 = 1024;
/// Maximum count of the processes and groups that share a row.
const MAX_OTHERS: usize = 1 << 14;
/// Maximum number of attributions that wait for their snapshot. Beyond it, the oldest is dropped.
const MAX_WAITING_ATTRIBUTIONS: usize = 1 << 16;
/// Default length of a part of the time.
const DEFAULT_PART: Duration = Duration::from_secs(1);

/// The kind of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// a control group, including all groups below it
    Cgroup,
    /// a process
    Process,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Cgroup => "cgroup",
            By::Process => "process",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Cgroup(String),
    Process(TargetId),
    Others,
}

/// Makes [`Groups`] from data that must be pushed in the order of a record. [`GroupsBuilder::begin`] starts
/// each recording in it.
#[derive(Debug)]
pub struct GroupsBuilder {
    options: Options,
    gate: Gate,
    basis: BasisTally,
    by: By,
    /// start of the first part of the time
    since: Duration,
    every: Duration,
    /// attributions later than the last snapshot
    waiting: VecDeque<Attribution>,
    attributions: BTreeMap<TargetId, Attribution>,
    rows: BTreeMap<Key, Course>,
    others: BTreeSet<Key>,
    /// seconds of each part that snapshots cover
    seen: BTreeMap<u32, f64>,
    /// number of snapshots so far, because a sequence number may occur again in the next recording
    snapshots: u64,
}

impl GroupsBuilder {
    /// A builder that has received no data. Parts of the time have the length `every`, 1 s by default, or 2, 4,
    /// 8, ... times as much if there would be more than 1024.
    #[must_use]
    pub fn new(options: Options, by: By, every: Option<Duration>) -> Self {
        GroupsBuilder {
            gate: Gate::new(options.filter.clone()),
            since: options.filter.time.as_ref().map_or(Duration::ZERO, |time| time.start),
            options,
            basis: BasisTally::default(),
            by,
            every: every.unwrap_or(DEFAULT_PART).max(Duration::from_millis(1)),
            waiting: VecDeque::new(),
            attributions: BTreeMap::new(),
            rows: BTreeMap::new(),
            others: BTreeSet::new(),
            seen: BTreeMap::new(),
            snapshots: 0,
        }
    }

    /// Starts a recording: previous attributions describe other processes. The attributions `first` hold from
    /// the start of their targets.
    pub fn begin(&mut self, first: impl IntoIterator<Item = Attribution>) {
        self.waiting.clear();
        self.attributions = first.into_iter().map(|a| (a.target, a)).collect();
    }

    /// Adds an attribution of a target.
    pub fn attribution(&mut self, a: &Attribution) {
        // Its counters are also part of the target's next attribution.
        if self.waiting.len() == MAX_WAITING_ATTRIBUTIONS {
            self.waiting.pop_front();
        }
        self.waiting.push_back(a.clone());
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(time) = self.gate.admit(s) else {
            self.come_to(s.end, None);
            return;
        };
        let part = self.part(time.start);
        self.come_to(s.end, Some(part));
        let seconds = (time.end - time.start).as_secs_f64();
        *self.seen.entry(part).or_default() += seconds;
        self.snapshots += 1;
        let mut all = HeatBytes::default();
        let filter = self.options.filter.clone();
        for view in filter.views(s) {
            let t = &self.options.thresholds;
            let bytes: HeatBytes = filter.clipped(view).map(|r| r.bytes(t)).sum();
            let saved = self.attributions.get(&view.id).map(|a| a.swapped);
            let shares = GroupBytes::of(&bytes, saved);
            let snapshot = self.snapshots;
            self.rows_of(view.id, |row| row.add(part, snapshot, &shares, seconds));
            all += bytes;
        }
        self.basis.whole(&all, seconds);
    }

    /// The part of the time that contains `time`.
    fn part(&mut self, time: Duration) -> u32 {
        loop {
            let part = time.saturating_sub(self.since).as_nanos() / self.every.as_nanos().max(1);
            match u32::try_from(part) {
                Ok(part) if part < MAX_PARTS => return part,
                _ => self.halve(),
            }
        }
    }

    fn halve(&mut self) {
        self.every *= 2;
        self.rows.values_mut().for_each(Course::halve);
        for (part, seconds) in std::mem::take(&mut self.seen) {
            *self.seen.entry(part / 2).or_default() += seconds;
        }
    }

    /// Applies the attributions up to `end`. Pages read back count for `part`, if that is selected.
    fn come_to(&mut self, end: Nanos, part: Option<u32>) {
        while self.waiting.front().is_some_and(|a| a.at <= end) {
            let Some(new) = self.waiting.pop_front() else { return };
            let (target, faults) = (new.target, new.major_faults);
            let before = self.attributions.insert(target, new);
            let wanted =
                self.options.filter.targets.as_ref().is_none_or(|ids| ids.contains(&target));
            let part = part.filter(|_| wanted);
            let faults = before.map(|b| faults.saturating_sub(b.major_faults));
            if let (Some(part), Some(faults)) = (part, faults) {
                self.rows_of(target, |row| row.refault(part, faults));
            }
        }
    }

    fn keys(&self, target: TargetId) -> Vec<Key> {
        match (self.by, self.attributions.get(&target)) {
            (By::Process, _) => vec![Key::Process(target)],
            (By::Cgroup, Some(a)) => a.groups().map(|path| Key::Cgroup(path.to_owned())).collect(),
            (By::Cgroup, None) => vec![Key::Cgroup(String::new())],
        }
    }

    /// Adds to each row of a target once. Several of its groups may share the last row.
    fn rows_of(&mut self, target: TargetId, mut add: impl FnMut(&mut Course)) {
        let keys: BTreeSet<Key> =
            self.keys(target).into_iter().map(|key| self.row_of(key)).collect();
        keys.into_iter().for_each(|key| add(self.rows.entry(key).or_default()));
    }

    /// The row of `key`, or the shared row.
    fn row_of(&mut self, key: Key) -> Key {
        if self.rows.contains_key(&key) {
            return key;
        }
        if self.rows.len() < MAX_ROWS {
            self.rows.insert(key.clone(), Course::default());
            return key;
        }
        if self.others.len() < MAX_OTHERS {
            self.others.insert(key);
        }
        Key::Others
    }

    /// The figures.
    ///
    /// # Errors
    /// If there was nothing in the selected time or at the selected addresses.
    pub fn finish(self) -> Result<Groups, FilterError> {
        let time = self.gate.found_memory()?;
        let mut rows: Vec<GroupRow> =
            self.rows.iter().map(|(key, course)| self.figures(key, course)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.mean.of_any_heat()));
        Ok(Groups {
            schema_version: 1,
            title: self.options.title.clone(),
            basis: self.basis.basis(&self.options, &time),
            by: self.by.name(),
            every_ms: ms(self.every),
            rows,
            others: self.others.len() as u64,
        })
    }

    fn figures(&self, key: &Key, course: &Course) -> GroupRow {
        let (target, label, cgroup) = match key {
            Key::Others => (None, "(others)".to_owned(), None),
            Key::Cgroup(path) if path.is_empty() => (None, "(unknown group)".to_owned(), None),
            Key::Cgroup(path) => (None, path.clone(), None),
            Key::Process(id) => {
                let cgroup = self.attributions.get(id).map(|a| a.cgroup.to_string());
                (Some(id.0), self.options.label(*id), cgroup)
            }
        };
        let (mean, refaulted_bytes) = course.whole(self.basis.seconds);
        let start = |part| ms(self.since) + f64::from(part) * ms(self.every);
        let over_time = course.over_time(|part| {
            let seconds = self.seen.get(&part).copied().unwrap_or_default();
            (start(part), start(part + 1), seconds)
        });
        let missing = self.options.missing;
        GroupRow {
            target,
            label,
            cgroup,
            mean: mean.known(missing),
            last: course.last(self.snapshots).known(missing),
            refaulted_bytes,
            over_time: over_time
                .into_iter()
                .map(|part| TimeBucket { mean: part.mean.known(missing), ..part })
                .collect(),
        }
    }
}
