//! Counts of the accesses that a workload really made.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use isotherm_core::{AddrRange, Nanos, PAGE_SIZE, Thresholds};
use isotherm_sim::{GroundTruth, IntervalTruth, MachineKind, Stretch, TRUTH_VERSION};

/// Counters that all threads update.
pub struct AccessCounts {
    /// touches per stretch since the start
    touches: Vec<AtomicU64>,
    /// per page, the number of the interval in which it was last touched; 0: never
    stamps: Vec<AtomicU32>,
    /// number of the current interval, from 1
    interval: AtomicU32,
}

impl AccessCounts {
    pub fn new(stretches: usize, pages: usize) -> Self {
        let zero = || AtomicU64::new(0);
        let never = || AtomicU32::new(0);
        AccessCounts {
            touches: std::iter::repeat_with(zero).take(stretches).collect(),
            stamps: std::iter::repeat_with(never).take(pages).collect(),
            interval: AtomicU32::new(1),
        }
    }

    /// Address of the touch counters, one word per stretch. Other processes may read them at any time.
    pub fn counts(&self) -> AddrRange {
        let counts = self.touches.as_ptr_range();
        AddrRange::new(counts.start as u64, counts.end as u64)
    }

    /// The number of the current interval.
    pub fn interval(&self) -> u32 {
        self.interval.load(Relaxed)
    }

    /// Records that a page was touched in an interval.
    pub fn stamp(&self, page: u64, interval: u32) {
        if let Some(stamp) = usize::try_from(page).ok().and_then(|page| self.stamps.get(page)) {
            stamp.store(interval, Relaxed);
        }
    }

    /// Adds touches of a stretch.
    pub fn count(&self, stretch: usize, touches: u64) {
        if let Some(sum) = self.touches.get(stretch) {
            sum.fetch_add(touches, Relaxed);
        }
    }
}

/// The completed intervals, read from a `AccessCounts`.
pub struct TruthRecorder<'a> {
    access_counts: &'a AccessCounts,
    stretches: Vec<Stretch>,
    base: u64,
    seed: u64,
    begin: Nanos,
    /// touches per stretch at the end of the last interval
    before: Vec<u64>,
    intervals: Vec<IntervalTruth>,
}

impl<'a> TruthRecorder<'a> {
    /// No intervals yet; the first one starts at `begin`.
    pub fn new(
        access_counts: &'a AccessCounts,
        stretches: Vec<Stretch>,
        base: u64,
        seed: u64,
        begin: Nanos,
    ) -> Self {
        let before = vec![0; stretches.len()];
        TruthRecorder { access_counts, stretches, base, seed, begin, before, intervals: Vec::new() }
    }

    /// Ends the current interval, unless its length is 0.
    pub fn close(&mut self, phase: &str, now: Nanos) {
        let start = self.intervals.last().map_or(self.begin, IntervalTruth::end);
        if now <= start {
            return;
        }
        let sums: Vec<u64> =
            self.access_counts.touches.iter().map(|sum| sum.load(Relaxed)).collect();
        let current = self.access_counts.interval.fetch_add(1, Relaxed);
        let pages: Vec<(u64, u64)> =
            self.stretches.iter().map(|s| self.touched_and_idle(s, current, now)).collect();
        self.intervals.push(IntervalTruth {
            start_ns: start.0,
            end_ns: now.0,
            phase: phase.to_owned(),
            touches: sums.iter().zip(&self.before).map(|(now, before)| now - before).collect(),
            touched: pages.iter().map(|p| p.0).collect(),
            idle: pages.iter().map(|p| p.1).collect(),
        });
        self.before = sums;
    }

    /// The pages of a stretch that were touched in this interval, and the pages that are idle at its end.
    fn touched_and_idle(&self, stretch: &Stretch, current: u32, now: Nanos) -> (u64, u64) {
        let page =
            |addr: u64| usize::try_from((addr - self.base) / PAGE_SIZE).unwrap_or(usize::MAX);
        let stride = usize::try_from(stretch.stride).unwrap_or(usize::MAX);
        let stamps = self.access_counts.stamps.get(page(stretch.start)..page(stretch.end));
        let (mut touched, mut idle) = (0, 0);
        for stamp in stamps.unwrap_or_default().iter().step_by(stride) {
            let stamp = stamp.load(Relaxed);
            touched += u64::from(stamp >= current);
            idle += u64::from(stamp < current && self.is_idle(stamp, now));
        }
        (touched, idle)
    }

    /// Whether a page that was last touched in interval `stamp` is idle: that interval ended at least the cold
    /// age ago.
    fn is_idle(&self, stamp: u32, now: Nanos) -> bool {
        let last = usize::try_from(stamp).unwrap_or(usize::MAX).checked_sub(1);
        let ended =
            last.map_or(Some(self.begin), |i| self.intervals.get(i).map(IntervalTruth::end));
        ended.is_some_and(|t| now.since(t) >= Thresholds::default().cold_age)
    }

    /// The accesses that really happened: the ground truth against which a record is scored.
    pub fn truth(self, name: &str, populated: Nanos) -> GroundTruth {
        let cold_age = Thresholds::default().cold_age.as_nanos();
        GroundTruth {
            schema_version: TRUTH_VERSION,
            workload: name.to_owned(),
            seed: self.seed,
            machine: MachineKind::Real,
            populated_ns: populated.0,
            idle_ns: u64::try_from(cold_age).unwrap_or(u64::MAX),
            stretches: self.stretches,
            intervals: self.intervals,
        }
    }
}
