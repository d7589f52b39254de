//! Changes snapshots of a record: cuts by time, address and target, longer intervals.

mod aggregate;
mod rewrite;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Nanos, Snapshot, TargetId, TargetView};

pub use self::aggregate::aggregate;
pub use self::rewrite::{EditError, Lacked, Rewriter};

/// The parts of a record to keep, and their form.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// Time since the begin of the record. Snapshots that lie within it stay.
    pub time: Option<Range<Duration>>,
    /// Addresses. Regions are cut at its ends.
    pub addr: Option<AddrRange>,
    /// the targets that stay
    pub targets: Option<BTreeSet<TargetId>>,
    /// Snapshots are joined until they are at least this long.
    pub aggr: Option<Duration>,
}

/// Applies an [`Edit`] to the snapshots of a record, which must be pushed in order of time.
#[derive(Debug)]
pub struct Editor {
    edit: Edit,
    begin: Option<Nanos>,
    waiting: Vec<Snapshot>,
    seq: u64,
}

impl Editor {
    /// An editor that has received no snapshot.
    #[must_use]
    pub fn new(edit: Edit) -> Self {
        Editor { edit, begin: None, waiting: Vec::new(), seq: 0 }
    }

    /// Whether a target stays.
    #[must_use]
    pub fn keeps(&self, target: TargetId) -> bool {
        self.edit.targets.as_ref().is_none_or(|ids| ids.contains(&target))
    }

    /// Whether a time stays. All times before the first snapshot count as its begin.
    #[must_use]
    pub fn keeps_time(&self, at: Nanos) -> bool {
        let since = self.begin.map_or(Duration::ZERO, |begin| at.since(begin));
        self.edit.time.as_ref().is_none_or(|time| time.contains(&since))
    }

    /// When the selected time begins, if it is known when the record began.
    #[must_use]
    pub fn begin(&self) -> Option<Nanos> {
        let selected = self.edit.time.as_ref().map_or(Duration::ZERO, |time| time.start);
        self.begin.map(|begin| begin + selected)
    }

    /// Whether it knows when the record began.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begin.is_some()
    }

    /// Whether all later snapshots are left out.
    #[must_use]
    pub fn is_done(&self, at: Nanos) -> bool {
        let ended =
            |time: &Range<Duration>| self.begin.is_some_and(|begin| at.since(begin) >= time.end);
        self.edit.time.as_ref().is_some_and(ended)
    }

    /// Adds a snapshot, and returns one if one is complete.
    pub fn push(&mut self, s: &Snapshot) -> Option<Snapshot> {
        let begin = *self.begin.get_or_insert(s.start);
        if let Some(time) = &self.edit.time {
            let inside = time.start <= s.start.since(begin) && s.end.since(begin) <= time.end;
            if !inside {
                return None;
            }
        }
        let part = self.part(s);
        let Some(aggr) = self.edit.aggr else { return Some(self.numbered(part)) };
        self.waiting.push(part);
        let from = self.waiting.first().map_or(s.start, |first| first.start);
        if s.end.since(from) >= aggr { self.join(aggr) } else { None }
    }

    /// The rest: a last snapshot that is shorter than the others.
    pub fn rest(&mut self) -> Option<Snapshot> {
        self.join(self.edit.aggr?)
    }

    fn join(&mut self, aggr: Duration) -> Option<Snapshot> {
        let joined = aggregate(&self.waiting.iter().collect::<Vec<_>>(), aggr)?;
        self.waiting.clear();
        Some(self.numbered(joined))
    }

    fn numbered(&mut self, s: Snapshot) -> Snapshot {
        self.seq += 1;
        Snapshot { seq: self.seq - 1, ..s }
    }

    /// The targets and addresses of a snapshot that stay.
    fn part(&self, s: &Snapshot) -> Snapshot {
        let mut part = s.clone();
        part.targets.retain(|view| self.keeps(view.id));
        if self.edit.addr.is_some() {
            part.targets.iter_mut().for_each(|view| self.clip(view));
        }
        part
    }

    /// The part of a range that stays.
    fn clipped(&self, range: &AddrRange) -> Option<AddrRange> {
        self.edit.addr.map_or(Some(*range), |addr| range.intersect(&addr))
    }

    /// Cuts a target to the addresses. Its idle ages are counted over all of it, so that they do not stay.
    fn clip(&self, view: &mut TargetView) {
        let clip = |range: &mut AddrRange| {
            let rest = self.clipped(range);
            *range = rest.unwrap_or(*range);
            rest.is_some()
        };
        view.regions.retain_mut(|r| clip(&mut r.range));
        let mut mappings = view.mappings.to_vec();
        mappings.retain_mut(|m| clip(&mut m.range));
        if *view.mappings != mappings {
            view.mappings = Arc::new(mappings);
        }
        view.left_out = left_out(view);
        view.ages = None;
    }
}

/// Mapped bytes that no region covers.
fn left_out(view: &TargetView) -> u64 {
    let covered = view.regions.iter().map(|r| r.range.len()).sum();
    view.mapped().saturating_sub(covered)
}
