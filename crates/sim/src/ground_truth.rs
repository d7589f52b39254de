//! Ground truth: counts of touches that really happened, by stretch of memory and interval.
//!
//! The program that touches real memory writes it, or it is computed from a simulated machine.
//! `docs/abi/testing/workload.md` describes the file.

use std::io::{self, Read, Write};

use isotherm_core::{AddrRange, BLOCK_SIZE, Nanos, PAGE_SIZE, align_down, join_touching};
use serde::{Deserialize, Serialize};

/// Version of the file format.
pub const TRUTH_VERSION: u32 = 1;

/// The touches of a target during a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroundTruth {
    /// [`TRUTH_VERSION`]
    pub schema_version: u32,
    /// name or file of the workload
    pub workload: String,
    /// seed of the workload's layout and random numbers
    pub seed: u64,
    /// the kind of machine on which it ran
    pub machine: MachineKind,
    /// time at which all memory had been written once, on the clock of the intervals
    pub populated_ns: u64,
    /// minimum time for which an idle page was not touched
    pub idle_ns: u64,
    /// ascending, disjoint
    pub stretches: Vec<Stretch>,
    /// ascending, each from the end of the previous one
    pub intervals: Vec<IntervalTruth>,
}

/// The kind of machine on which a workload ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// on real memory
    Real,
    /// on a [`crate::Machine`]
    Simulated,
}

/// Memory whose pages have the same access pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// address of the first byte
    pub start: u64,
    /// address after the last byte
    pub end: u64,
    /// the region of the workload that contains it
    pub name: String,
    /// distance between pages that may be touched, in pages; the first page may be touched
    pub stride: u64,
    /// in huge pages, wherever they fit in it together with adjacent huge stretches
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub huge: bool,
}

/// Counts of an interval, one per stretch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntervalTruth {
    /// start
    pub start_ns: u64,
    /// end
    pub end_ns: u64,
    /// name of the phase
    pub phase: String,
    /// touches
    pub touches: Vec<u64>,
    /// pages touched at least once
    pub touched: Vec<u64>,
    /// pages that may be touched and were idle at its end
    pub idle: Vec<u64>,
}

/// Maximum length of a file, in bytes: a day has a few MiB.
const MAX_LEN: u64 = 64 << 20;

/// Why the input is not a valid ground truth.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TruthError {
    /// the input cannot be read
    #[error("the truth cannot be read: {0}")]
    Read(String),
    /// too long
    #[error("it is longer than {} MiB, the limit of a truth file", MAX_LEN >> 20)]
    Long,
    /// not in this format
    #[error("it is not the truth of a workload: {0}")]
    Json(String),
    /// of another version of the format
    #[error("the truth is of version {0}, not {TRUTH_VERSION}: write it again with this isotherm")]
    Version(u32),
    /// out of order
    #[error("the {0} of the truth are out of order: write it again")]
    Order(&'static str),
    /// the number of counts differs from the number of stretches
    #[error(
        "an interval of the truth has not as many counts as there are stretches: write it again"
    )]
    Counts,
    /// an invalid stride, or ends that are not page-aligned
    #[error("a stretch of the truth is no range of pages: write it again")]
    Stretch,
}

impl Stretch {
    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> AddrRange {
        AddrRange::new(self.start, self.end)
    }

    /// Pages that may be touched.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages_in(self.range())
    }

    /// The number of pages that may be touched in `range`, which must be page-aligned.
    ///
    /// Example: of the pages 17 to 40 of a stretch with a stride of 16, only the 32nd counts: 41/16 - 17/16,
    /// rounded up, is 3 - 2.
    #[must_use]
    pub fn pages_in(&self, range: AddrRange) -> u64 {
        let before = |addr: u64| ((addr - self.start) / PAGE_SIZE).div_ceil(self.stride.max(1));
        range.intersect(&self.range()).map_or(0, |r| before(r.end) - before(r.start))
    }

    fn is_sound(&self) -> bool {
        let of_pages = |x: u64| x.is_multiple_of(PAGE_SIZE);
        self.start < self.end && of_pages(self.start) && of_pages(self.end) && self.stride > 0
    }
}

impl IntervalTruth {
    /// Its begin.
    #[must_use]
    pub fn start(&self) -> Nanos {
        Nanos(self.start_ns)
    }

    /// Its end.
    #[must_use]
    pub fn end(&self) -> Nanos {
        Nanos(self.end_ns)
    }
}

impl GroundTruth {
    /// Reads a ground truth and checks it.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn read(from: impl Read) -> Result<Self, TruthError> {
        let mut text = Vec::new();
        let read = from.take(MAX_LEN + 1).read_to_end(&mut text);
        read.map_err(|e| TruthError::Read(e.to_string()))?;
        if text.len() as u64 > MAX_LEN {
            return Err(TruthError::Long);
        }
        let truth: Result<GroundTruth, _> = serde_json::from_slice(&text);
        truth.map_err(|e| TruthError::Json(e.to_string()))?.checked()
    }

    /// Writes a ground truth in the form that [`GroundTruth::read`] reads.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut to, self)?;
        writeln!(to)
    }

    /// Checks a ground truth that was read from a file.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn checked(self) -> Result<Self, TruthError> {
        if self.schema_version != TRUTH_VERSION {
            return Err(TruthError::Version(self.schema_version));
        }
        if !self.stretches.iter().all(Stretch::is_sound) {
            return Err(TruthError::Stretch);
        }
        if self.stretches.windows(2).any(|w| w[0].end > w[1].start) {
            return Err(TruthError::Order("stretches"));
        }
        let backwards = |i: &IntervalTruth| i.end_ns <= i.start_ns;
        let overlap = self.intervals.windows(2).any(|w| w[0].end_ns > w[1].start_ns);
        if overlap || self.intervals.iter().any(backwards) {
            return Err(TruthError::Order("intervals"));
        }
        let n = self.stretches.len();
        let whole =
            |i: &IntervalTruth| [&i.touches, &i.touched, &i.idle].iter().all(|c| c.len() == n);
        if !self.intervals.iter().all(whole) {
            return Err(TruthError::Counts);
        }
        Ok(self)
    }

    /// All touches of the `i`-th stretch.
    #[must_use]
    pub fn touches(&self, i: usize) -> u64 {
        self.intervals.iter().filter_map(|v| v.touches.get(i)).sum()
    }

    /// Memory in huge pages, from the first to the last that fits; ascending, disjoint.
    #[must_use]
    pub fn huge_pages(&self) -> Vec<AddrRange> {
        let huge = self.stretches.iter().filter(|s| s.huge).map(Stretch::range);
        let whole = |r: AddrRange| {
            let start = r.start.next_multiple_of(BLOCK_SIZE);
            AddrRange::new(start, align_down(r.end, BLOCK_SIZE))
        };
        join_touching(huge).into_iter().map(whole).filter(|r| !r.is_empty()).collect()
    }

    /// Indices of the stretches that overlap `range`.
    #[must_use]
    pub fn stretches_in(&self, range: AddrRange) -> std::ops::Range<usize> {
        let first = self.stretches.partition_point(|s| s.end <= range.start);
        let last = self.stretches.partition_point(|s| s.start < range.end);
        first..last.max(first)
    }

    /// The intervals that overlap the time between `from` and `to`.
    pub(crate) fn intervals_in(&self, from: Nanos, to: Nanos) -> &[IntervalTruth] {
        let first = self.intervals.partition_point(|i| i.end() <= from);
        let last = self.intervals.partition_point(|i| i.start() < to);
        &self.intervals[first..last.max(first)]
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// The `i`-th block of 2 MiB from address 0, of which each `stride`-th page may be touched.
    pub fn block(i: u64, stride: u64) -> Stretch {
        let (start, end) = (i * BLOCK_SIZE, (i + 1) * BLOCK_SIZE);
        Stretch { start, end, name: String::new(), stride, huge: false }
    }

    /// The truth of a simulated machine, on which memory is idle after 5 s.
    pub fn truth(stretches: Vec<Stretch>, intervals: Vec<IntervalTruth>) -> GroundTruth {
        GroundTruth {
            schema_version: TRUTH_VERSION,
            workload: String::new(),
            seed: 1,
            machine: MachineKind::Simulated,
            populated_ns: 0,
            idle_ns: 5_000_000_000,
            stretches,
            intervals,
        }
    }
}
