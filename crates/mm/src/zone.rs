//! A zone: its pages, watermarks and counters.

use serde::Serialize;

use crate::counter::{Counter, drift_mark, normal_threshold, pressure_threshold};
use crate::layout::ZoneKind;
use crate::lru::FrameId;
use crate::watermark::Watermarks;

/// A file's share of a zone that may be dirty: `vm.dirty_ratio`.
const DIRTY_PERCENT: i64 = 20;

/// A zone as it is now. Pages throughout.
#[derive(Debug, Clone)]
pub struct Zone {
    /// which memory it is
    pub kind: ZoneKind,
    /// the node that it is part of
    pub node: usize,
    /// pages that the allocator manages
    pub managed: i64,
    /// free pages at which something changes
    pub watermarks: Watermarks,
    /// kept from those who ask for a higher kind, by [`ZoneKind::index`]
    pub reserve: [i64; 5],
    /// free pages: `NR_FREE_PAGES`
    pub free: Counter,
    /// what may still be taken in this round of a fair policy: `NR_ALLOC_BATCH`
    pub batch: Counter,
    /// nothing may, as the landed policy marks it: `ZONE_FAIR_DEPLETED`
    pub depleted: bool,
    /// pages of files that are to be written
    pub dirty: i64,
    /// pages of files on lists
    pub file: i64,
    /// pages of processes on lists
    pub anon: i64,
    /// scanned since a page was freed
    pub scanned_in_vain: i64,
    /// what has happened so far
    pub stats: ZoneStats,
    pub(crate) free_frames: Vec<FrameId>,
    drift_mark: Option<i64>,
    /// free pages that are not counted on for what is to be written: `dirty_balance_reserve`
    never_dirty: i64,
}

/// What has happened in a zone, in pages unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ZoneStats {
    /// given out: `pgalloc`
    pub allocated: u64,
    /// given back, by whoever
    pub freed: u64,
    /// looked at by kswapd: `pgscan_kswapd`
    pub scanned_kswapd: u64,
    /// looked at by those who allocate: `pgscan_direct`
    pub scanned_direct: u64,
    /// taken back by kswapd: `pgsteal_kswapd`
    pub reclaimed_kswapd: u64,
    /// taken back by those who allocate: `pgsteal_direct`
    pub reclaimed_direct: u64,
    /// moved from an inactive list to an active one
    pub activated: u64,
    /// times that the batch was set anew
    pub resets: u64,
    /// sum of the ages of the pages taken back, in the caller's unit of time
    pub age_sum: u128,
}

impl ZoneStats {
    /// Pages taken back.
    #[must_use]
    pub fn reclaimed(&self) -> u64 {
        self.reclaimed_kswapd + self.reclaimed_direct
    }

    /// What has happened since `before`.
    #[must_use]
    pub fn since(&self, before: &ZoneStats) -> ZoneStats {
        ZoneStats {
            allocated: self.allocated - before.allocated,
            freed: self.freed - before.freed,
            scanned_kswapd: self.scanned_kswapd - before.scanned_kswapd,
            scanned_direct: self.scanned_direct - before.scanned_direct,
            reclaimed_kswapd: self.reclaimed_kswapd - before.reclaimed_kswapd,
            reclaimed_direct: self.reclaimed_direct - before.reclaimed_direct,
            activated: self.activated - before.activated,
            resets: self.resets - before.resets,
            age_sum: self.age_sum - before.age_sum,
        }
    }
}

impl Zone {
    pub(crate) fn new(
        (kind, node): (ZoneKind, usize),
        frames: std::ops::Range<FrameId>,
        watermarks: Watermarks,
        reserve: [i64; 5],
        cpus: u32,
    ) -> Self {
        let managed = i64::from(frames.end - frames.start);
        let threshold = normal_threshold(cpus, managed);
        let Watermarks { min, low, high } = watermarks;
        let mut zone = Zone {
            kind,
            node,
            managed,
            watermarks,
            reserve,
            free: Counter::new(managed, cpus),
            batch: Counter::new(high - low, cpus),
            depleted: false,
            dirty: 0,
            file: 0,
            anon: 0,
            scanned_in_vain: 0,
            stats: ZoneStats::default(),
            free_frames: frames.rev().collect(),
            drift_mark: drift_mark(cpus, threshold, min, low, high),
            never_dirty: high + reserve.iter().copied().max().unwrap_or(0),
        };
        zone.set_threshold(threshold);
        zone
    }

    /// Whether more than `mark` pages and the reserve for `class` are free: `zone_watermark_ok`.
    #[inline]
    #[must_use]
    pub fn is_above(&self, mark: i64, class: ZoneKind) -> bool {
        self.free.read() > mark + self.reserve[class.index()]
    }

    /// The same, looked at closely where drift could matter: `zone_watermark_ok_safe`.
    #[must_use]
    pub fn is_safely_above(&self, mark: i64, class: ZoneKind) -> bool {
        let close = self.drift_mark.is_some_and(|drift| self.free.read() < drift);
        let free = if close { self.free.exact() } else { self.free.read() };
        free > mark + self.reserve[class.index()]
    }

    /// Whether kswapd has nothing to do here for those who ask for `class`: `zone_balanced`.
    #[must_use]
    pub fn is_balanced(&self, gap: i64, class: ZoneKind) -> bool {
        self.is_safely_above(self.watermarks.high + gap, class)
    }

    /// What the lower zones get beyond their high watermark, so that kswapd keeps pace in all:
    /// a hundredth of the zone, the low watermark at most.
    #[must_use]
    pub fn balance_gap(&self) -> i64 {
        self.watermarks.low.min((self.managed + 99) / 100)
    }

    /// What a round of a fair policy begins with: `high - low`.
    #[must_use]
    pub fn full_batch(&self) -> i64 {
        self.watermarks.high - self.watermarks.low
    }

    /// The first half of a reset: what is missing. Between both halves another CPU may do the same.
    #[must_use]
    pub fn missing_batch(&self) -> i64 {
        self.full_batch() - self.batch.read()
    }

    /// The second half of a reset.
    pub fn add_to_batch(&mut self, cpu: u32, missing: i64) {
        self.batch.add(cpu, missing);
        self.depleted = false;
        self.stats.resets += 1;
    }

    /// Whether a page that is to be written may be put here: `zone_dirty_ok`.
    #[must_use]
    pub fn is_within_dirty_limit(&self) -> bool {
        let dirtyable = (self.free.read() - self.never_dirty).max(0) + self.file;
        self.dirty <= dirtyable * DIRTY_PERCENT / 100
    }

    /// Whether scanning it still makes sense: `zone_reclaimable`.
    #[must_use]
    pub fn is_reclaimable(&self) -> bool {
        self.scanned_in_vain < (self.file + self.anon) * 6
    }

    /// How much each CPU may keep to itself, while kswapd sleeps or while it does not.
    pub(crate) fn set_pressure(&mut self, cpus: u32, awake: bool) {
        let Watermarks { min, low, .. } = self.watermarks;
        let normal = normal_threshold(cpus, self.managed);
        self.set_threshold(if awake { pressure_threshold(cpus, low, min) } else { normal });
    }

    /// CPUs hand in at once.
    pub(crate) fn without_drift(&mut self) {
        self.set_threshold(0);
        self.drift_mark = None;
    }

    fn set_threshold(&mut self, threshold: i64) {
        self.free.set_threshold(threshold);
        self.batch.set_threshold(threshold);
    }
}
