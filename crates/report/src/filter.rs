//! The selected part of a record, and the errors if it contains nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Missing, Nanos, RegionView, Snapshot, TargetId, TargetView, Thresholds,
};

use crate::units;

/// The options of every report.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Options {
    /// heading, for example `redis-server, 60 s, 20 ms/400 ms`
    pub title: String,
    /// the selected part of the record
    pub filter: RecordFilter,
    /// the limits of hot and cold
    pub thresholds: Thresholds,
    /// labels of targets, for example `redis-server (pid 1234)`; a target that is missing here is called
    /// `target 0`
    pub labels: BTreeMap<TargetId, String>,
    /// the way to look, from the record
    pub look: String,
    /// figures that the record does not have
    pub missing: Missing,
    /// times for which a damaged record has no data
    pub gaps: Vec<Gap>,
}

/// A part of a record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// from the previous snapshot to the next one, since the start of the first snapshot; length 0 if the gap
    /// is before the first or after the last snapshot
    pub time: Range<Duration>,
    /// number of missing snapshots, as far as it is known
    pub snapshots: u64,
}

impl Options {
    /// A report of everything, with this title.
    #[must_use]
    pub fn titled(title: impl Into<String>) -> Self {
        Options { title: title.into(), ..Options::default() }
    }

    pub(crate) fn label(&self, id: TargetId) -> String {
        self.labels.get(&id).cloned().unwrap_or_else(|| format!("target {}", id.0))
    }
}

/// A part of a record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordFilter {
    /// time since the start of the first snapshot; `None`: all
    pub time: Option<Range<Duration>>,
    /// addresses, to which regions are clipped; `None`: all
    pub addr: Option<AddrRange>,
    /// targets; `None`: all
    pub targets: Option<BTreeSet<TargetId>>,
}

impl RecordFilter {
    pub(crate) fn clip(&self) -> AddrRange {
        self.addr.unwrap_or(AddrRange::new(0, u64::MAX))
    }

    /// Whether this target is selected.
    pub(crate) fn wants(&self, id: TargetId) -> bool {
        self.targets.as_ref().is_none_or(|ids| ids.contains(&id))
    }

    /// The selected targets.
    pub(crate) fn views<'a>(&'a self, s: &'a Snapshot) -> impl Iterator<Item = &'a TargetView> {
        s.targets.iter().filter(|t| self.wants(t.id))
    }

    /// The selected regions, clipped.
    pub(crate) fn regions<'a>(&'a self, s: &'a Snapshot) -> impl Iterator<Item = RegionView> {
        self.views(s).flat_map(|view| self.clipped(view))
    }

    /// The regions of a target, clipped.
    pub(crate) fn clipped<'a>(
        &self,
        view: &'a TargetView,
    ) -> impl Iterator<Item = RegionView> + use<'a> {
        let clip = self.clip();
        let inside =
            move |r: &RegionView| r.range.intersect(&clip).map(|range| RegionView { range, ..*r });
        view.regions.iter().filter_map(inside)
    }
}

/// The reason why there is nothing to report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// the record has no snapshot
    #[error("the record holds no snapshot, as its recording was too short: record for longer")]
    Empty,
    /// no snapshot in the selected time
    #[error(
        "no snapshot from {} to {}: the record spans 0 s to {}, choose a time range within it",
        units::time(.asked.start), units::time(.asked.end), units::time(*.span)
    )]
    Time {
        /// the selected time
        asked: Range<Duration>,
        /// length of the record
        span: Duration,
    },
    /// no memory at the selected addresses
    #[error("no monitored memory at {asked:?}: the record has {}, choose addresses within it", spans(.record))]
    Addr {
        /// the selected addresses
        asked: AddrRange,
        /// lowest and highest address of the record
        record: Option<AddrRange>,
    },
}

fn spans(record: &Option<AddrRange>) -> String {
    record.map_or("no regions at all".to_owned(), |r| format!("regions within {r:?}"))
}

/// Receives every snapshot of a record, and determines the part that is selected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate {
    filter: RecordFilter,
    begin: Option<Nanos>,
    span: Duration,
    regions: Option<AddrRange>,
    /// whether a region is at the selected addresses
    inside: bool,
    /// selected time that has snapshots
    pub time: Option<Range<Duration>>,
}

impl Gate {
    pub(crate) fn new(filter: RecordFilter) -> Self {
        Gate { filter, ..Gate::default() }
    }

    /// The selected part of the snapshot's interval, since the start of the record.
    pub(crate) fn admit(&mut self, s: &Snapshot) -> Option<Range<Duration>> {
        let begin = *self.begin.get_or_insert(s.start);
        let (start, end) = (s.start.since(begin), s.end.since(begin));
        self.span = self.span.max(end);
        let all = Duration::ZERO..Duration::MAX;
        let wanted = self.filter.time.as_ref().unwrap_or(&all);
        let part = start.max(wanted.start)..end.min(wanted.end);
        if part.is_empty() {
            return None;
        }
        self.note(s);
        let time = self.time.get_or_insert(part.clone());
        *time = time.start.min(part.start)..time.end.max(part.end);
        Some(part)
    }

    /// Whether a time is in the selected part of the record.
    pub(crate) fn is_in_time(&self, at: Nanos) -> bool {
        let Some(begin) = self.begin else { return false };
        self.filter.time.as_ref().is_none_or(|time| time.contains(&at.since(begin)))
    }

    fn note(&mut self, s: &Snapshot) {
        for t in self.filter.views(s) {
            if let (Some(first), Some(last)) = (t.regions.first(), t.regions.last()) {
                let r = self.regions.get_or_insert(first.range);
                *r = AddrRange::new(r.start.min(first.range.start), r.end.max(last.range.end));
            }
            self.inside |=
                t.regions.iter().any(|r| r.range.intersect(&self.filter.clip()).is_some());
        }
    }

    /// The selected time that has snapshots.
    pub(crate) fn found(&self) -> Result<Range<Duration>, FilterError> {
        match (&self.time, &self.filter.time, self.begin) {
            (Some(time), ..) => Ok(time.clone()),
            (None, Some(asked), Some(_)) if !self.span.is_zero() => {
                Err(FilterError::Time { asked: asked.clone(), span: self.span })
            }
            _ => Err(FilterError::Empty),
        }
    }

    /// Like [`Gate::found`], but fails if there was no memory.
    pub(crate) fn found_memory(&self) -> Result<Range<Duration>, FilterError> {
        let time = self.found()?;
        if self.inside { Ok(time) } else { Err(self.no_memory()) }
    }

    /// The error if there was no region.
    pub(crate) fn no_memory(&self) -> FilterError {
        FilterError::Addr { asked: self.filter.clip(), record: self.regions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;

    fn gate(time: Option<Range<u64>>) -> Gate {
        let time = time.map(|t| Duration::from_secs(t.start)..Duration::from_secs(t.end));
        let mut gate = Gate::new(RecordFilter { time, ..RecordFilter::default() });
        for s in 0..60 {
            gate.admit(&scene::snapshot(s, 1.0, vec![]));
        }
        gate
    }

    #[test]
    fn time_is_counted_from_the_first_snapshot_and_cut_at_the_borders() {
        let mut gate = Gate::new(RecordFilter {
            time: Some(Duration::from_millis(1500)..Duration::from_secs(3)),
            ..RecordFilter::default()
        });
        let parts: Vec<_> = (7..12).map(|s| gate.admit(&scene::snapshot(s, 1.0, vec![]))).collect();
        let ms = Duration::from_millis;
        assert_eq!(parts, [None, Some(ms(1500)..ms(2000)), Some(ms(2000)..ms(3000)), None, None]);
        assert_eq!(gate.found(), Ok(ms(1500)..ms(3000)));
    }

    #[test]
    fn an_empty_record_and_an_empty_range_are_distinguished() {
        assert_eq!(Gate::new(RecordFilter::default()).found(), Err(FilterError::Empty));
        let error = gate(Some(70..80)).found().unwrap_err().to_string();
        assert_eq!(
            error,
            "no snapshot from 70 s to 80 s: the record spans 0 s to 60 s, choose a time range within it"
        );
    }

    #[test]
    fn a_range_that_runs_over_the_end_is_cut() {
        assert_eq!(
            gate(Some(50..90)).found(),
            Ok(Duration::from_secs(50)..Duration::from_secs(60))
        );
    }
}
