//! What was really touched.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use isotherm_core::{AddrRange, Nanos, PAGE_SIZE, Thresholds};
use isotherm_sim::{GroundTruth, Interval, MachineKind, Stretch, TRUTH_VERSION};

/// Counts that all threads add to.
pub struct Ledger {
    /// touches by stretch, from the begin
    touches: Vec<AtomicU64>,
    /// by page: the number of the interval in which it was last touched; 0 is never
    stamps: Vec<AtomicU32>,
    /// number of the interval that goes on, from 1
    interval: AtomicU32,
}

impl Ledger {
    pub fn new(stretches: usize, pages: usize) -> Self {
        let zero = || AtomicU64::new(0);
        let never = || AtomicU32::new(0);
        Ledger {
            touches: std::iter::repeat_with(zero).take(stretches).collect(),
            stamps: std::iter::repeat_with(never).take(pages).collect(),
            interval: AtomicU32::new(1),
        }
    }

    /// Where the counts of touches lie, a word for each stretch: others may read them meanwhile.
    pub fn counts(&self) -> AddrRange {
        let counts = self.touches.as_ptr_range();
        AddrRange::new(counts.start as u64, counts.end as u64)
    }

    /// The number of the interval that goes on.
    pub fn interval(&self) -> u32 {
        self.interval.load(Relaxed)
    }

    /// That a page was touched in an interval.
    pub fn stamp(&self, page: u64, interval: u32) {
        if let Some(stamp) = usize::try_from(page).ok().and_then(|page| self.stamps.get(page)) {
            stamp.store(interval, Relaxed);
        }
    }

    /// That a stretch was touched so often.
    pub fn count(&self, stretch: usize, touches: u64) {
        if let Some(sum) = self.touches.get(stretch) {
            sum.fetch_add(touches, Relaxed);
        }
    }
}

/// The intervals so far, as read off a `Ledger`.
pub struct Book<'a> {
    ledger: &'a Ledger,
    stretches: Vec<Stretch>,
    base: u64,
    seed: u64,
    begin: Nanos,
    /// touches by stretch when the last interval ended
    before: Vec<u64>,
    intervals: Vec<Interval>,
}

impl<'a> Book<'a> {
    /// Nothing yet, from `begin` on.
    pub fn new(
        ledger: &'a Ledger,
        stretches: Vec<Stretch>,
        base: u64,
        seed: u64,
        begin: Nanos,
    ) -> Self {
        let before = vec![0; stretches.len()];
        Book { ledger, stretches, base, seed, begin, before, intervals: Vec::new() }
    }

    /// Ends the interval that goes on, if it has any length.
    pub fn close(&mut self, phase: &str, now: Nanos) {
        let start = self.intervals.last().map_or(self.begin, Interval::end);
        if now <= start {
            return;
        }
        let sums: Vec<u64> = self.ledger.touches.iter().map(|sum| sum.load(Relaxed)).collect();
        let current = self.ledger.interval.fetch_add(1, Relaxed);
        let pages: Vec<(u64, u64)> =
            self.stretches.iter().map(|s| self.touched_and_idle(s, current, now)).collect();
        self.intervals.push(Interval {
            start_ns: start.0,
            end_ns: now.0,
            phase: phase.to_owned(),
            touches: sums.iter().zip(&self.before).map(|(now, before)| now - before).collect(),
            touched: pages.iter().map(|p| p.0).collect(),
            idle: pages.iter().map(|p| p.1).collect(),
        });
        self.before = sums;
    }

    /// The pages of a stretch that were touched in this interval, and that have been idle at its end.
    fn touched_and_idle(&self, stretch: &Stretch, current: u32, now: Nanos) -> (u64, u64) {
        let page =
            |addr: u64| usize::try_from((addr - self.base) / PAGE_SIZE).unwrap_or(usize::MAX);
        let stride = usize::try_from(stretch.stride).unwrap_or(usize::MAX);
        let stamps = self.ledger.stamps.get(page(stretch.start)..page(stretch.end));
        let (mut touched, mut idle) = (0, 0);
        for stamp in stamps.unwrap_or_default().iter().step_by(stride) {
            let stamp = stamp.load(Relaxed);
            touched += u64::from(stamp >= current);
            idle += u64::from(stamp < current && self.is_idle(stamp, now));
        }
        (touched, idle)
    }

    /// Whether an interval ended so long ago that a page not touched since is idle.
    fn is_idle(&self, stamp: u32, now: Nanos) -> bool {
        let last = usize::try_from(stamp).unwrap_or(usize::MAX).checked_sub(1);
        let ended = last.map_or(Some(self.begin), |i| self.intervals.get(i).map(Interval::end));
        ended.is_some_and(|t| now.since(t) >= Thresholds::default().cold_age)
    }

    /// What was really touched: the truth that a record is scored against.
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
