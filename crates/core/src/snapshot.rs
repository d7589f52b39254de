//! What one aggregation interval has shown.

use std::sync::Arc;
use std::time::Duration;

use crate::attrs::Attrs;
use crate::call::{Cost, TargetId};
use crate::estimator::Rate;
use crate::heat::{Heat, HeatBytes, Thresholds};
use crate::ops::Mapping;
use crate::range::AddrRange;
use crate::region::to_bp;
use crate::support::{RateSupport, SupportBytes, share};
use crate::time::Nanos;
use crate::unknown::{Pages, Unknown};

/// The state of all targets over one aggregation interval. Never changes once made.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// counts from 0, without gaps, within one source
    pub seq: u64,
    /// begin of the interval
    pub start: Nanos,
    /// end of the interval
    pub end: Nanos,
    /// as in force during the interval
    pub attrs: Attrs,
    /// what looking cost during the interval
    pub cost: Cost,
    /// how much to believe it, where the monitor tells
    pub quality: Option<Quality>,
    /// in ascending order of their id
    pub targets: Vec<TargetView>,
}

/// How much a snapshot tells, and how surely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Share of the resident memory whose accesses can be seen that has been looked at so lately that
    /// the snapshot tells of it, of 10,000.
    pub coverage_bp: u32,
    /// Half of the width of the rates' 95 % intervals, as a binary logarithm: the mean over the bytes
    /// that were touched. E.g. 0.5: rates are right within a factor of 1.4. None if nothing was
    /// touched.
    pub error_log2: Option<f32>,
    /// pages that somebody else has cleared in the interval: reclaim, a kdamond
    pub externally_cleared: u64,
    /// what the monitor did without, so as not to disturb its targets
    pub restraint: Restraint,
}

/// What a monitor does without where its targets are short of memory: clearing makes pages look old to
/// reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Restraint {
    /// nothing
    #[default]
    None,
    /// Reclaim is at work, or near: short runs only, and each page seldom.
    ShortRuns,
    /// What is reclaimed is wanted again: nothing is cleared.
    ReadOnly,
}

/// One target in a [`Snapshot`].
#[derive(Debug, Clone, PartialEq)]
pub struct TargetView {
    /// which
    pub id: TargetId,
    /// CPU time that it used during the interval, if that can be told. A target that did not run
    /// looks cold.
    pub ran: Option<Duration>,
    /// what it may access, as last read; the same `Arc` as long as nothing has changed
    pub mappings: Arc<Vec<Mapping>>,
    /// mapped bytes that no region covers, because there are more areas than regions allowed
    pub left_out: u64,
    /// sorted, disjoint
    pub regions: Vec<RegionView>,
}

/// One region in a [`Snapshot`]. Shares are of 10,000 (basis points) of the region's pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegionView {
    /// where
    pub range: AddrRange,
    /// share of looked-at pages found accessed within a sampling interval, absent ones included:
    /// the kernel's `nr_accesses` over its maximum
    pub accesses_bp: u32,
    /// how long it has kept its heat
    pub age: Duration,
    /// first-touch rate of those of its pages that are touched: see `touched_bp`
    pub rate: Rate,
    /// Share of its resident pages whose accesses can be seen that are touched at all; the others
    /// are not. E.g. 625 where each sixteenth page is in use.
    pub touched_bp: u32,
    /// share of its pages that are resident
    pub resident_bp: u32,
    /// share of its pages that are resident and unknown, by reason
    pub unknown_bp: Pages<u32>,
    /// What its rate rests on. None if that is not told: in records of versions before 4.
    pub support: Option<RateSupport>,
}

impl RegionView {
    /// Hot, warm or cold, for the part of the region that is not unknown: what most of that is.
    ///
    /// Touches at so low a rate that nine of ten pages are untouched for as long as makes them cold do
    /// not make it warm.
    #[must_use]
    pub fn heat(&self, t: &Thresholds) -> Heat {
        // Without a rate, what was touched was touched too late to have one.
        let untouched = self.accesses_bp == 0 || self.rate.hz > 0.0 && self.warm_share(t) < 0.1;
        if f64::from(self.rate.hz) >= t.hot_hz && self.touched_bp >= HALF_BP {
            Heat::Hot
        } else if untouched && self.age >= t.cold_age {
            Heat::Cold
        } else {
            Heat::Warm
        }
    }

    /// Share of what can be seen that was touched within the time that makes memory cold: of pages
    /// touched at rate l, 1 - exp(-l s) within s.
    fn warm_share(&self, t: &Thresholds) -> f64 {
        let within = -(-f64::from(self.rate.hz) * t.cold_age.as_secs_f64()).exp_m1();
        within * f64::from(self.touched_bp.min(10_000)) / 10_000.0
    }

    /// Resident bytes whose accesses cannot be seen, for one reason.
    #[must_use]
    pub fn unknown_bytes(&self, why: Unknown) -> u64 {
        share(self.range.len(), self.unknown_bp.0[why.index()])
    }

    /// Its bytes, sorted by what is known of them. They add up to its length.
    ///
    /// Of a region of which a part is touched, the rest is as old as the region: e.g. if each sixteenth
    /// page has been hot for a minute, 15 of 16 are cold.
    #[must_use]
    pub fn bytes(&self, t: &Thresholds) -> HeatBytes {
        let (resident, seen) = (self.resident_bytes(), self.seen_bytes());
        let (unknown, absent) = (resident - seen, self.range.len() - resident);
        let mut b = HeatBytes { unknown, absent, ..HeatBytes::default() };
        if f64::from(self.rate.hz) >= t.hot_hz {
            b.hot = share(seen, self.touched_bp.min(10_000));
        } else {
            b.warm = share(seen, to_bp(self.warm_share(t)));
        }
        // The rest is as old as the region.
        let rest = seen - b.hot - b.warm;
        *if self.age >= t.cold_age { &mut b.cold } else { &mut b.warm } += rest;
        b
    }

    /// Its bytes whose accesses can be seen, by what its rate rests on; none if that is not told.
    #[must_use]
    pub fn support_bytes(&self) -> SupportBytes {
        self.support.map(|s| SupportBytes::of(self.seen_bytes(), s)).unwrap_or_default()
    }

    fn resident_bytes(&self) -> u64 {
        share(self.range.len(), self.resident_bp.min(10_000))
    }

    /// Resident bytes whose accesses can be seen.
    fn seen_bytes(&self) -> u64 {
        let unknown = Unknown::ALL.iter().map(|&w| self.unknown_bytes(w)).sum::<u64>();
        self.resident_bytes().saturating_sub(unknown)
    }
}

/// More than half: what a region is called after.
const HALF_BP: u32 = 5_000;

impl TargetView {
    /// Bytes that the target may access.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.mappings.iter().map(|m| m.range.len()).sum()
    }

    /// Bytes of all its regions, sorted by what is known of them.
    #[must_use]
    pub fn bytes(&self, t: &Thresholds) -> HeatBytes {
        self.regions.iter().map(|r| r.bytes(t)).sum()
    }

    /// Bytes of all its regions whose accesses can be seen, by what their rates rest on.
    #[must_use]
    pub fn support_bytes(&self) -> SupportBytes {
        self.regions.iter().map(RegionView::support_bytes).sum()
    }
}

impl Snapshot {
    /// Regions over all targets.
    #[must_use]
    pub fn nr_regions(&self) -> usize {
        self.targets.iter().map(|t| t.regions.len()).sum()
    }

    /// Bytes of all targets, sorted by what is known of them.
    #[must_use]
    pub fn bytes(&self, t: &Thresholds) -> HeatBytes {
        self.targets.iter().map(|v| v.bytes(t)).sum()
    }

    /// Bytes of all targets whose accesses can be seen, by what their rates rest on.
    #[must_use]
    pub fn support_bytes(&self) -> SupportBytes {
        self.targets.iter().map(TargetView::support_bytes).sum()
    }
}
