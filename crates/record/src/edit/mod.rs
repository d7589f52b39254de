//! Changes snapshots of a record: cuts by time, address and target, longer intervals.

mod aggregate;
mod rewrite;

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, HugeAges, Mapping, Nanos, PageAges, RegionView, Snapshot, TargetId, TargetView,
};

pub use self::aggregate::aggregate;
pub use self::rewrite::{EditError, Lacked, Rewriter};
use crate::mappings;

/// The most memory in bytes that snapshots that wait to be joined may have, except for the last of them.
pub const MAX_WAITING_BYTES: usize = 128 << 20;

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
    /// their memory in bytes, and the most that it may be
    waiting_bytes: usize,
    max_waiting: usize,
    seq: u64,
}

impl Editor {
    /// An editor that has received no snapshot.
    #[must_use]
    pub fn new(edit: Edit) -> Self {
        Editor {
            edit,
            begin: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            max_waiting: MAX_WAITING_BYTES,
            seq: 0,
        }
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
    ///
    /// # Errors
    /// If the snapshots that wait to be joined have more than [`MAX_WAITING_BYTES`], and joining them does not halve
    /// that.
    pub fn push(&mut self, s: &Snapshot) -> Result<Option<Snapshot>, EditError> {
        let begin = *self.begin.get_or_insert(s.start);
        if let Some(time) = &self.edit.time {
            let inside = time.start <= s.start.since(begin) && s.end.since(begin) <= time.end;
            if !inside {
                return Ok(None);
            }
        }
        let part = self.part(s);
        let Some(aggr) = self.edit.aggr else { return Ok(Some(self.numbered(part))) };
        self.waiting_bytes += bytes(&part, self.waiting.last());
        self.waiting.push(part);
        let from = self.waiting.first().map_or(s.start, |first| first.start);
        if s.end.since(from) >= aggr {
            return Ok(self.join(aggr));
        }
        if self.waiting_bytes > self.max_waiting {
            self.join_early()?;
        }
        Ok(None)
    }

    /// The rest: a last snapshot that is shorter than the others.
    pub fn rest(&mut self) -> Option<Snapshot> {
        self.join(self.edit.aggr?)
    }

    fn join(&mut self, aggr: Duration) -> Option<Snapshot> {
        let mut joined = aggregate(&self.waiting.iter().collect::<Vec<_>>(), aggr)?;
        (self.waiting, self.waiting_bytes) = (Vec::new(), 0);
        // Regions that cannot be joined may be more than the monitor was allowed to have.
        let regions = u32::try_from(joined.nr_regions()).unwrap_or(u32::MAX);
        joined.attrs.max_regions = joined.attrs.max_regions.max(regions);
        Some(self.numbered(joined))
    }

    /// Joins what waits before the interval is complete, as one part of it.
    fn join_early(&mut self) -> Result<(), EditError> {
        let joined = aggregate(&self.waiting.iter().collect::<Vec<_>>(), Duration::ZERO);
        self.waiting = joined.into_iter().collect();
        self.waiting_bytes = self.waiting.iter().map(|s| bytes(s, None)).sum();
        let joined = self.waiting_bytes;
        if joined > self.max_waiting / 2 { Err(EditError::TooMuch { joined }) } else { Ok(()) }
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

/// The memory of a snapshot in bytes, without the mappings that it shares with the one before it.
fn bytes(s: &Snapshot, before: Option<&Snapshot>) -> usize {
    let known = before.iter().flat_map(|s| &s.targets).map(|view| Arc::as_ptr(&view.mappings));
    let known: HashSet<*const Vec<Mapping>> = known.collect();
    let ages = |ages: &Arc<PageAges>| {
        size_of::<PageAges>() + ages.huge.as_ref().map_or(0, |_| size_of::<HugeAges>())
    };
    let view = |view: &TargetView| {
        let is_known = known.contains(&Arc::as_ptr(&view.mappings));
        size_of::<TargetView>()
            + view.regions.len() * size_of::<RegionView>()
            + if is_known { 0 } else { mappings::bytes(&view.mappings) }
            + view.ages.as_ref().map_or(0, ages)
    };
    size_of::<Snapshot>() + s.targets.iter().map(view).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::aggregate::tests::scattered;
    use super::*;

    fn joined(all: &[Snapshot], max_waiting: usize) -> Result<Snapshot, EditError> {
        let edit = Edit { aggr: Some(Duration::from_secs(1000)), ..Edit::default() };
        let mut editor = Editor { max_waiting, ..Editor::new(edit) };
        for s in all {
            assert!(editor.push(s)?.is_none());
            assert!(editor.waiting_bytes <= max_waiting, "{}", editor.waiting_bytes);
        }
        Ok(editor.rest().unwrap())
    }

    /// Found by an audit: all snapshots of an interval were in memory at once.
    #[test]
    fn snapshots_that_wait_have_bounded_memory() {
        let all = scattered(200, 20);
        let one = bytes(&all[0], None);
        let (at_once, in_steps) = (joined(&all, 1000 * one), joined(&all, 20 * one));
        let (at_once, in_steps) = (at_once.unwrap(), in_steps.unwrap());
        for s in [&at_once, &in_steps] {
            assert_eq!((s.start, s.end, s.cost.looks), (all[0].start, all[199].end, 200));
            assert!((1..=20).contains(&s.nr_regions()));
        }
        let touched = |s: &Snapshot| {
            let of = |r: &RegionView| r.range.len() as f64 * f64::from(r.touched_bp);
            s.targets[0].regions.iter().map(of).sum::<f64>()
        };
        let off = touched(&in_steps) / touched(&at_once);
        assert!((0.99..1.01).contains(&off), "{off}");
        // Not even one of them fits.
        let refused = joined(&all, one / 2);
        assert!(matches!(refused, Err(EditError::TooMuch { .. })), "{refused:?}");
    }

    /// Mappings counted in each snapshot, although a reader gives all of them the same.
    #[test]
    fn mappings_that_snapshots_share_count_once() {
        let mut all = scattered(200, 20);
        let mut mapping = all[0].targets[0].mappings[0].clone();
        mapping.name = "n".repeat(1 << 20).into();
        let mappings = Arc::new(vec![mapping]);
        all.iter_mut().for_each(|s| s.targets[0].mappings = Arc::clone(&mappings));
        let aggr = Some(Duration::from_secs(1000));
        let mut editor = Editor::new(Edit { aggr, ..Edit::default() });
        for s in &all {
            assert!(editor.push(s).unwrap().is_none());
        }
        assert_eq!(editor.waiting.len(), all.len());
        let expected = 1 << 20..2 << 20;
        assert!(expected.contains(&editor.waiting_bytes), "{}", editor.waiting_bytes);
        // Other mappings count, also if they are equal.
        all[0].targets[0].mappings = Arc::new(mappings.to_vec());
        assert!(bytes(&all[0], editor.waiting.last()) > 1 << 20);
    }

    /// A check of the record found more regions than its attributes permit.
    #[test]
    fn a_joined_snapshot_permits_its_regions() {
        let mut all = scattered(200, 20);
        all.iter_mut().for_each(|s| s.attrs.max_regions = 1);
        let s = joined(&all, MAX_WAITING_BYTES).unwrap();
        assert!(s.nr_regions() > 1);
        assert_eq!(s.attrs.max_regions as usize, s.nr_regions());
    }
}
