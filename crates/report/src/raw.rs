//! Every snapshot and every region, in order.

use std::time::Duration;

use isotherm_core::{AgeHistogram, HeatBytes, Missing, Nanos, PageAges, Snapshot, TargetView};
use serde::Serialize;

use crate::basis::{GapFigures, gaps, ms, names};
use crate::filter::{FilterError, Gate, Options};
use crate::row::RegionRow;

/// The data before the first snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RawHead {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// memory is hot at or above this rate
    pub hot_hz: f64,
    /// memory is cold if untouched for at least this long
    pub cold_ms: f64,
    /// the way to look; empty if the record does not contain it
    pub look: String,
    /// figures that the record does not have
    #[serde(serialize_with = "names")]
    pub missing: Missing,
    /// times for which a damaged record has no data
    pub gaps: Vec<GapFigures>,
    /// lowest ages of the bins of histograms
    pub age_bins_ms: Vec<u64>,
}

/// The selected part of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RawSnapshot {
    /// its number
    pub seq: u64,
    /// start, since the start of the recording
    pub from_ms: f64,
    /// end, since the start of the recording
    pub to_ms: f64,
    /// its targets
    pub targets: Vec<RawTarget>,
}

/// A target in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RawTarget {
    /// its number
    pub target: u32,
    /// label
    pub label: String,
    /// CPU time that it used; null if unknown
    pub ran_ms: Option<f64>,
    /// resident bytes; `None` if the record does not contain them
    pub resident_bytes: Option<u64>,
    /// resident bytes whose accesses cannot be observed
    pub unknown_bytes: u64,
    /// mapped bytes that no region covers
    pub left_out_bytes: u64,
    /// of a file: cached, with changes that are not on the disk yet; `None` for other targets
    pub dirty_bytes: Option<u64>,
    /// of a file: being written to the disk
    pub writeback_bytes: Option<u64>,
    /// idle ages of all of its pages, in the snapshots that have them; `None` if addresses are selected
    pub ages: Option<RawAges>,
    /// in ascending order of address
    pub regions: Vec<RegionRow>,
}

/// Idle ages of a target's pages. Histograms are numbers of pages, estimated from a sample: see [`PageAges`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RawAges {
    /// duration of the counting: no older age is known
    pub counted_ms: f64,
    /// duration of the counting of `returned`
    pub returned_ms: f64,
    /// one in this many windows was counted
    pub sampling: u32,
    /// mean error of the ages in `returned`
    pub error_ms: u32,
    /// resident pages, by the time since their last touch
    pub idle: Vec<u32>,
    /// those of `idle` that were never touched since the counting began
    pub untouched: u32,
    /// resident pages of unknown age
    pub unknown: u32,
    /// pages in swap, and evicted pages of files, by the time since their last touch
    pub swapped: Vec<u32>,
    /// touches of idle pages, by the age before the touch
    pub returned: Vec<u32>,
    /// those of `idle` in huge pages
    pub huge_idle: Vec<u32>,
    /// those of `returned` in huge pages
    pub huge_returned: Vec<u32>,
}

impl RawAges {
    /// The ages that a snapshot which ends at `end` has.
    fn new(ages: &PageAges, end: Nanos) -> Self {
        let pages = |histogram: &AgeHistogram| histogram.0.to_vec();
        let huge = ages.huge.as_deref().copied().unwrap_or_default();
        RawAges {
            counted_ms: ms(end.since(ages.begun)),
            returned_ms: ms(end.since(ages.since)),
            sampling: ages.sampling,
            error_ms: ages.error_ms,
            idle: pages(&ages.idle),
            untouched: ages.untouched,
            unknown: ages.unknown,
            swapped: pages(&ages.swapped),
            returned: pages(&ages.returned),
            huge_idle: pages(&huge.idle),
            huge_returned: pages(&huge.returned),
        }
    }
}

/// Turns snapshots into [`RawSnapshot`]s one by one, and keeps none.
#[derive(Debug)]
pub struct Raw {
    options: Options,
    gate: Gate,
}

impl Raw {
    /// A converter that has received no snapshot.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Raw { gate: Gate::new(options.filter.clone()), options }
    }

    /// The data before the first snapshot.
    #[must_use]
    pub fn head(&self) -> RawHead {
        RawHead {
            schema_version: 1,
            title: self.options.title.clone(),
            hot_hz: self.options.thresholds.hot_hz,
            cold_ms: ms(self.options.thresholds.cold_age),
            look: self.options.look.clone(),
            missing: self.options.missing,
            gaps: gaps(&self.options, &(Duration::ZERO..Duration::MAX)),
            age_bins_ms: (0..).map_while(AgeHistogram::lowest_ms).collect(),
        }
    }

    /// Converts a snapshot, if it is in the selected time.
    pub fn snapshot(&mut self, s: &Snapshot) -> Option<RawSnapshot> {
        let time = self.gate.admit(s)?;
        let targets = self.options.filter.views(s).map(|view| self.target(view, s.end)).collect();
        Some(RawSnapshot { seq: s.seq, from_ms: ms(time.start), to_ms: ms(time.end), targets })
    }

    fn target(&self, view: &TargetView, end: Nanos) -> RawTarget {
        let t = &self.options.thresholds;
        let clipped = || self.options.filter.clipped(view);
        let bytes: HeatBytes = clipped().map(|r| r.bytes(t)).sum();
        RawTarget {
            target: view.id.0,
            label: self.options.label(view.id),
            ran_ms: view.ran.map(ms),
            resident_bytes: self.options.missing.resident(bytes.resident()),
            unknown_bytes: bytes.unknown,
            left_out_bytes: view.left_out,
            dirty_bytes: view.dirty.map(|d| d.dirty),
            writeback_bytes: view.dirty.map(|d| d.writeback),
            ages: view
                .ages
                .as_ref()
                .filter(|_| self.options.filter.addr.is_none())
                .map(|ages| RawAges::new(ages, end)),
            regions: clipped().map(|r| RegionRow::new(view, &r, &self.options)).collect(),
        }
    }

    /// Checks that there was data.
    ///
    /// # Errors
    /// If there was nothing in the selected time or at the selected addresses.
    pub fn finish(&self) -> Result<(), FilterError> {
        self.gate.found_memory().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{mapping, region, snapshot, target, unknown};
    use isotherm_core::{AddrRange, Unknown};

    #[test]
    fn all_regions_come_in_their_order_and_are_clipped() {
        let maps = || vec![mapping(0, 0x10000, "[heap]")];
        let regions = || {
            vec![
                region(0, 0x4000, 50.0),
                unknown(0x4000, 0x8000, Unknown::Dma),
                region(0x8000, 0x9000, 0.0),
            ]
        };
        let s = snapshot(7, 1.0, vec![target(0, maps(), regions()), target(3, maps(), regions())]);
        let mut options = Options::default();
        options.filter.addr = Some(AddrRange::new(0x1000, 0x6000));
        let mut raw = Raw::new(options);
        let out = raw.snapshot(&s).unwrap();
        assert_eq!((out.seq, out.from_ms, out.to_ms), (7, 0.0, 1000.0));
        assert_eq!(out.targets.iter().map(|t| t.target).collect::<Vec<_>>(), [0, 3]);
        for t in &out.targets {
            let ranges: Vec<_> = t.regions.iter().map(|r| (r.range.start, r.range.end)).collect();
            assert_eq!(ranges, [(0x1000, 0x4000), (0x4000, 0x6000)]);
            assert_eq!((t.resident_bytes, t.unknown_bytes), (Some(0x5000), 0x2000));
        }
        assert_eq!(raw.finish(), Ok(()));
    }

    #[test]
    fn ages_have_bins_and_durations() {
        let ages = |at: usize| {
            let mut idle = AgeHistogram::default();
            idle.0[at] = 7;
            PageAges { idle, untouched: 3, since: Nanos(500_000_000), ..PageAges::default() }
        };
        let mut view = target(0, vec![], vec![region(0, 0x4000, 50.0)]);
        view.ages = Some(ages(2).into());
        let s = snapshot(7, 1.0, vec![view]);
        let mut raw = Raw::new(Options::default());
        assert_eq!(raw.head().age_bins_ms[..4], [0, 250, 314, 396]);
        let out = raw.snapshot(&s).unwrap().targets.remove(0).ages.unwrap();
        assert_eq!((out.idle[2], out.idle.len(), out.untouched), (7, 69, 3));
        assert_eq!(out.counted_ms - out.returned_ms, 500.0);
        let mut options = Options::default();
        options.filter.addr = Some(AddrRange::new(0, 0x1000));
        assert_eq!(Raw::new(options).snapshot(&s).unwrap().targets[0].ages, None);
    }
}
