//! A zone: its pages, watermarks and counters.

use serde::Serialize;

use crate::counter::{Counter, drift_mark, normal_threshold, pressure_threshold};
use crate::layout::ZoneKind;
use crate::lru::FrameId;
use crate::watermark::ZoneWatermarks;

/// Maximum share of a zone that may be dirty file pages, in percent: `vm.dirty_ratio`.
const DIRTY_PERCENT: i64 = 20;

/// The state of a zone. All sizes are in pages.
#[derive(Debug, Clone)]
pub struct Zone {
    /// the kind of memory
    pub kind: ZoneKind,
    /// the node of the zone
    pub node: usize,
    /// pages that the allocator manages
    pub managed: i64,
    /// the watermarks of free pages
    pub watermarks: ZoneWatermarks,
    /// pages reserved from requests for a higher kind, by [`ZoneKind::index`]
    pub reserve: [i64; 5],
    /// free pages: `NR_FREE_PAGES`
    pub free: Counter,
    /// pages that may still be allocated in this round of a fair policy: `NR_ALLOC_BATCH`
    pub batch: Counter,
    /// no more page may be allocated in this round, as the landed policy marks it: `ZONE_FAIR_DEPLETED`
    pub depleted: bool,
    /// dirty file pages
    pub dirty: i64,
    /// file pages on lists
    pub file: i64,
    /// process pages on lists
    pub anon: i64,
    /// pages scanned since the last page was freed
    pub scanned_in_vain: i64,
    /// counters since the start
    pub stats: ZoneStats,
    pub(crate) free_frames: Vec<FrameId>,
    drift_mark: Option<i64>,
    /// free pages that may not be used for dirty pages: `dirty_balance_reserve`
    never_dirty: i64,
}

/// Counters of a zone, in pages unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ZoneStats {
    /// allocated: `pgalloc`
    pub allocated: u64,
    /// freed, by anyone
    pub freed: u64,
    /// scanned by kswapd: `pgscan_kswapd`
    pub scanned_kswapd: u64,
    /// scanned by direct reclaim: `pgscan_direct`
    pub scanned_direct: u64,
    /// reclaimed by kswapd: `pgsteal_kswapd`
    pub reclaimed_kswapd: u64,
    /// reclaimed by direct reclaim: `pgsteal_direct`
    pub reclaimed_direct: u64,
    /// moved from an inactive list to an active one
    pub activated: u64,
    /// number of resets of the batch
    pub resets: u64,
    /// sum of the ages of the reclaimed pages, in the caller's unit of time
    pub age_sum: u128,
}

impl ZoneStats {
    /// Number of reclaimed pages.
    #[must_use]
    pub fn reclaimed(&self) -> u64 {
        self.reclaimed_kswapd + self.reclaimed_direct
    }

    /// The differences from `before`.
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
        watermarks: ZoneWatermarks,
        reserve: [i64; 5],
        cpus: u32,
    ) -> Self {
        let managed = i64::from(frames.end - frames.start);
        let threshold = normal_threshold(cpus, managed);
        let ZoneWatermarks { min, low, high } = watermarks;
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

    /// As [`Zone::is_above`], with an exact count where drift could matter: `zone_watermark_ok_safe`.
    #[must_use]
    pub fn is_safely_above(&self, mark: i64, class: ZoneKind) -> bool {
        let close = self.drift_mark.is_some_and(|drift| self.free.read() < drift);
        let free = if close { self.free.exact() } else { self.free.read() };
        free > mark + self.reserve[class.index()]
    }

    /// Whether kswapd has no work in this zone for requests for `class`: `zone_balanced`.
    #[must_use]
    pub fn is_balanced(&self, gap: i64, class: ZoneKind) -> bool {
        self.is_safely_above(self.watermarks.high + gap, class)
    }

    /// Extra free pages in lower zones above their high watermark, so that kswapd progresses evenly in all
    /// zones: 1 % of the zone, and at most its low watermark.
    #[must_use]
    pub fn balance_gap(&self) -> i64 {
        self.watermarks.low.min((self.managed + 99) / 100)
    }

    /// The batch at the start of a round of a fair policy: `high - low`.
    #[must_use]
    pub fn full_batch(&self) -> i64 {
        self.watermarks.high - self.watermarks.low
    }

    /// The first half of a reset: the number of missing pages. Another CPU may do the same between the two
    /// halves.
    #[must_use]
    pub fn missing_batch(&self) -> i64 {
        self.full_batch() - self.batch.read()
    }

    /// The second half of a reset: adds the missing pages.
    pub fn add_to_batch(&mut self, cpu: u32, missing: i64) {
        self.batch.add(cpu, missing);
        self.depleted = false;
        self.stats.resets += 1;
    }

    /// Whether the zone may hold one more dirty page: `zone_dirty_ok`.
    #[must_use]
    pub fn is_within_dirty_limit(&self) -> bool {
        let dirtyable = (self.free.read() - self.never_dirty).max(0) + self.file;
        self.dirty <= dirtyable * DIRTY_PERCENT / 100
    }

    /// Whether another scan may still reclaim pages: `zone_reclaimable`.
    #[must_use]
    pub fn is_reclaimable(&self) -> bool {
        self.scanned_in_vain < (self.file + self.anon) * 6
    }

    /// Sets the threshold of the per-CPU counters, for kswapd asleep or awake.
    pub(crate) fn set_pressure(&mut self, cpus: u32, awake: bool) {
        let ZoneWatermarks { min, low, .. } = self.watermarks;
        let normal = normal_threshold(cpus, self.managed);
        self.set_threshold(if awake { pressure_threshold(cpus, low, min) } else { normal });
    }

    /// Makes all counters exact: CPUs then report each change at once.
    pub(crate) fn without_drift(&mut self) {
        self.set_threshold(0);
        self.drift_mark = None;
    }

    fn set_threshold(&mut self, threshold: i64) {
        self.free.set_threshold(threshold);
        self.batch.set_threshold(threshold);
    }
}
