//! The results of one aggregation interval.

use std::sync::Arc;
use std::time::Duration;

use crate::ages::PageAges;
use crate::attrs::Attrs;
use crate::call::{Cost, TargetId};
use crate::estimator::Rate;
use crate::heat::{Heat, HeatBytes, Thresholds};
use crate::ops::Mapping;
use crate::range::AddrRange;
use crate::region::to_bp;
use crate::support::{RateSupport, SupportBytes, share};
use crate::time::Nanos;
use crate::unknown::{Unknown, UnknownPages};

/// The state of all targets over one aggregation interval. A snapshot is immutable.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// sequence number: counts from 0, without gaps, within one source
    pub seq: u64,
    /// begin of the interval
    pub start: Nanos,
    /// end of the interval
    pub end: Nanos,
    /// attributes in force during the interval
    pub attrs: Attrs,
    /// cost of looking during the interval
    pub cost: Cost,
    /// coverage and error, if the monitor reports them
    pub quality: Option<Quality>,
    /// in ascending order of id
    pub targets: Vec<TargetView>,
}

/// How much memory a snapshot describes, and with which error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Coverage, of 10,000: the share of the visible resident memory that was looked at recently enough for
    /// the snapshot to describe it.
    pub coverage_bp: u32,
    /// Half of the width of the rates' 95 % confidence intervals, as a binary logarithm: mean over the
    /// touched bytes. Example: 0.5 means that rates are correct within a factor of 1.4. `None` if nothing was
    /// touched.
    pub error_log2: Option<f32>,
    /// pages that another party, such as reclaim or a kdamond, has cleared in the interval
    pub externally_cleared: u64,
    /// the strongest restraint of the monitor on any target
    pub restraint: Restraint,
}

impl Quality {
    /// The quality if all observable memory was read. Clears by other parties cannot be counted, because a bit
    /// hardly stays set until the next read.
    #[must_use]
    pub fn of_all(targets: &[TargetView]) -> Self {
        let (mut errors, mut bytes) = (0.0, 0.0);
        for r in targets.iter().flat_map(|t| &t.regions) {
            if let Some(error) = r.rate.error_log2() {
                errors += f64::from(error) * r.range.len() as f64;
                bytes += r.range.len() as f64;
            }
        }
        Quality {
            coverage_bp: 10_000,
            error_log2: (bytes > 0.0).then_some((errors / bytes) as f32),
            externally_cleared: 0,
            restraint: Restraint::None,
        }
    }
}

/// The clears that a monitor omits while its target is short of memory, because a clear makes pages look old
/// to reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Restraint {
    /// no restraint
    #[default]
    None,
    /// Reclaim is active or near: only short runs, and each page at most every few seconds.
    ShortRuns,
    /// Reclaimed memory refaults: no clears.
    ReadOnly,
}

/// One target in a [`Snapshot`].
#[derive(Debug, Clone, PartialEq)]
pub struct TargetView {
    /// id of the target
    pub id: TargetId,
    /// CPU time that the target used during the interval; `None` if not available. A target that did not run
    /// looks cold.
    pub ran: Option<Duration>,
    /// mappings that the target may access, as last read; the same `Arc` while they are unchanged
    pub mappings: Arc<Vec<Mapping>>,
    /// mapped bytes that no region covers, because there are more areas than permitted regions
    pub left_out: u64,
    /// changed pages of a file in the page cache, when they were last read; `None` if the target is no file, or in
    /// records of versions before 8
    pub dirty: Option<DirtyBytes>,
    /// sorted, disjoint
    pub regions: Vec<RegionView>,
    /// idle ages of its pages, in some snapshots only: every 10 s at first, later every minute
    pub ages: Option<Arc<PageAges>>,
}

/// Cached bytes of a file whose changes are not on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirtyBytes {
    /// changed, and not on the disk yet
    pub dirty: u64,
    /// being written to the disk
    pub writeback: u64,
}

/// One region in a [`Snapshot`]. Shares are of 10,000 (basis points) of the region's pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegionView {
    /// address range
    pub range: AddrRange,
    /// share of pages found accessed within a sampling interval, of the pages looked at including absent
    /// ones: the kernel's `nr_accesses` divided by its maximum
    pub accesses_bp: u32,
    /// time for which the region has kept its heat
    pub age: Duration,
    /// first-touch rate of the touched pages: see `touched_bp`
    pub rate: Rate,
    /// Share of the visible resident pages that are touched at all. Example: 625 if every sixteenth page is
    /// in use.
    pub touched_bp: u32,
    /// share of its pages that are resident
    pub resident_bp: u32,
    /// share of its pages that are resident and unknown, by reason
    pub unknown_bp: UnknownPages<u32>,
    /// Shares of the rate that are measured, extended and old. `None` in records of versions before 4.
    pub support: Option<RateSupport>,
}

impl RegionView {
    /// Hot, warm or cold: the heat of most of the part that is not unknown.
    ///
    /// Rare touches do not make a region warm if nine of ten pages are untouched for the time after which
    /// memory is cold.
    #[must_use]
    pub fn heat(&self, t: &Thresholds) -> Heat {
        // Accesses without a rate are touches that came too late to have one.
        let untouched =
            self.accesses_bp == 0 || self.rate.hz > 0.0 && self.touched_within(t.cold_age) < 0.1;
        if f64::from(self.rate.hz) >= t.hot_hz && self.touched_bp >= HALF_BP {
            Heat::Hot
        } else if untouched && self.age >= t.cold_age {
            Heat::Cold
        } else {
            Heat::Warm
        }
    }

    /// Share of the visible memory that was touched within a time `s`: 1 - exp(-l s) of the pages touched at rate l.
    #[must_use]
    pub fn touched_within(&self, time: Duration) -> f64 {
        let within = -(-f64::from(self.rate.hz) * time.as_secs_f64()).exp_m1();
        within * f64::from(self.touched_bp.min(10_000)) / 10_000.0
    }

    /// Resident bytes whose accesses cannot be observed for this reason.
    #[must_use]
    pub fn unknown_bytes(&self, why: Unknown) -> u64 {
        share(self.range.len(), self.unknown_bp.0[why.index()])
    }

    /// The bytes of the region by heat. They add up to its length.
    ///
    /// In a partly touched region, the untouched pages have the age of the region. Example: if every
    /// sixteenth page has been hot for a minute, 15 of 16 pages are cold.
    #[must_use]
    pub fn bytes(&self, t: &Thresholds) -> HeatBytes {
        let (resident, seen) = (self.resident_bytes(), self.seen_bytes());
        let (unknown, absent) = (resident - seen, self.range.len() - resident);
        let mut b = HeatBytes { unknown, absent, ..HeatBytes::default() };
        if f64::from(self.rate.hz) >= t.hot_hz {
            b.hot = share(seen, self.touched_bp.min(10_000));
        } else {
            b.warm = share(seen, to_bp(self.touched_within(t.cold_age)));
        }
        // The untouched pages have the age of the region.
        let rest = seen - b.hot - b.warm;
        *if self.age >= t.cold_age { &mut b.cold } else { &mut b.warm } += rest;
        b
    }

    /// The visible bytes of the region by support of the rate; all zero if the support is not recorded.
    #[must_use]
    pub fn support_bytes(&self) -> SupportBytes {
        self.support.map(|s| SupportBytes::of(self.seen_bytes(), s)).unwrap_or_default()
    }

    /// Resident bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        share(self.range.len(), self.resident_bp.min(10_000))
    }

    /// Resident bytes whose accesses can be observed.
    fn seen_bytes(&self) -> u64 {
        let unknown = Unknown::ALL.iter().map(|&w| self.unknown_bytes(w)).sum::<u64>();
        self.resident_bytes().saturating_sub(unknown)
    }
}

/// A share above this is the majority, which determines the heat of a region.
const HALF_BP: u32 = 5_000;

impl TargetView {
    /// Whether the target is a file in the page cache. Records of versions before 8 do not say so.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.dirty.is_some()
    }

    /// Bytes that the target may access.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.mappings.iter().map(|m| m.range.len()).sum()
    }

    /// Bytes of all its regions by heat.
    #[must_use]
    pub fn bytes(&self, t: &Thresholds) -> HeatBytes {
        self.regions.iter().map(|r| r.bytes(t)).sum()
    }

    /// Visible bytes of all its regions by support of the rate.
    #[must_use]
    pub fn support_bytes(&self) -> SupportBytes {
        self.regions.iter().map(RegionView::support_bytes).sum()
    }
}

impl Snapshot {
    /// Number of regions of all targets.
    #[must_use]
    pub fn nr_regions(&self) -> usize {
        self.targets.iter().map(|t| t.regions.len()).sum()
    }

    /// Bytes of all targets by heat.
    #[must_use]
    pub fn bytes(&self, t: &Thresholds) -> HeatBytes {
        self.targets.iter().map(|v| v.bytes(t)).sum()
    }

    /// Visible bytes of all targets by support of the rate.
    #[must_use]
    pub fn support_bytes(&self) -> SupportBytes {
        self.targets.iter().map(TargetView::support_bytes).sum()
    }
}
