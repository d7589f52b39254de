//! The regions monitor: random windows of adaptive regions, by the kernel's rules.

use std::sync::Arc;
use std::time::Duration;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::attrs::{Attrs, AttrsError};
use crate::call::{Cost, OpsError, TargetId};
use crate::monitor::Monitor;
use crate::ops::{Ask, Liveness, Look, Mapping, Seen, Space};
use crate::range::{AddrRange, join_touching};
use crate::region::{
    ANY_DIFFERENCE, ClearedWindow, Region, SplitPlan, age_regions, apply_min_nr_regions,
    evenly_split, merge_regions, random_page, set_regions, size_limit, split_regions,
    window_around,
};
use crate::region_view::view;
use crate::roster::{Roster, RosterMember, ran_since};
use crate::snapshot::{Snapshot, TargetView};
use crate::source::{Source, Step};
use crate::time::Nanos;
use crate::tuning::MIN_GAP;

/// A target of the regions monitor.
#[derive(Debug)]
pub struct Target {
    id: TargetId,
    regions: Vec<Region>,
    mappings: Arc<Vec<Mapping>>,
    left_out: u64,
    ran: Option<Duration>,
    /// memory that was never cleared since it was mapped; the lowest part is last
    unswept: Vec<AddrRange>,
}

impl Target {
    /// The id of the target.
    #[must_use]
    pub fn id(&self) -> TargetId {
        self.id
    }

    /// The regions of the target: sorted, disjoint, covering all mapped memory.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }
}

impl RosterMember for Target {
    fn id(&self) -> TargetId {
        self.id
    }
}

/// Samples targets by looking at random windows of adaptive regions.
///
/// Each sampling interval costs at most two batches of [`Attrs::max_regions`] asks, regardless of the size of the
/// targets: one batch reads the watched windows, the other clears the next ones. Reading is cheap and clearing is
/// expensive, so a region with a settled heat pays for a clear only every [`Attrs::clear_every`] intervals.
///
/// The results are deterministic for a seed and the answers of the operations set. Several monitors are
/// independent of each other.
pub struct RegionSampler<O> {
    ops: O,
    attrs: Attrs,
    roster: Roster<Target>,
    rng: Xoshiro256PlusPlus,
    clock: Clock,
    seq: u64,
    cost: Cost,
    last_count: usize,
    turn: usize,
    /// number of sampling intervals since the start
    tick: u64,
    asks: Vec<Ask>,
    seen: Vec<Seen>,
}

/// The times of the next events.
#[derive(Debug, Default)]
struct Clock {
    started: bool,
    interval_start: Nanos,
    next_sample: Nanos,
    next_update: Nanos,
    samples_passed: u32,
}

impl<O: Space + Look> RegionSampler<O> {
    /// Creates a monitor of `targets`, which `ops` must know. It looks at no memory before the first
    /// [`Source::step`].
    ///
    /// # Errors
    /// If `attrs` are invalid.
    pub fn new(ops: O, attrs: Attrs, targets: &[TargetId], seed: u64) -> Result<Self, AttrsError> {
        let mut monitor = RegionSampler {
            ops,
            attrs: attrs.checked()?,
            roster: Roster::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            clock: Clock::default(),
            seq: 0,
            cost: Cost::default(),
            last_count: 0,
            turn: 0,
            tick: 0,
            asks: Vec::new(),
            seen: Vec::new(),
        };
        Monitor::set_targets(&mut monitor, targets);
        Ok(monitor)
    }

    /// The targets that have not ended.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.roster.targets
    }

    fn start(&mut self, now: Nanos) -> Result<(), OpsError> {
        self.clock.started = true;
        self.clock.interval_start = now;
        self.update(now)?;
        self.prepare()?;
        self.clock.next_sample = now + self.attrs.sample;
        Ok(())
    }

    /// Reads the watched windows. An untouched window whose clear had a cost stays watched until its region
    /// may clear another one. With `last`, no window stays watched.
    fn check(&mut self, last: bool) -> Result<(), OpsError> {
        self.asks.clear();
        for t in &self.roster.targets {
            let windows = t.regions.iter().filter_map(|r| r.window);
            self.asks.extend(windows.map(|w| Ask { target: t.id, range: w.range, clear: false }));
        }
        self.look()?;
        self.cost.looks += self.asks.len() as u64;
        let clear_every = if last { 1 } else { self.clear_every() };
        let mut answers = self.seen.iter();
        let regions = self.roster.targets.iter_mut().flat_map(|t| &mut t.regions);
        for (region, window) in regions.filter_map(|r| r.window.take().map(|w| (r, w))) {
            let Some(seen) = answers.next() else { break };
            let reads = window.reads + 1;
            if let Some(since) = seen.since {
                region.tally.add(seen, since, 1);
            } else if seen.pages > 0
                && seen.young == 0
                && window.paid
                && reads < region.clear_every(clear_every)
            {
                region.window = Some(ClearedWindow { reads, ..window });
            } else {
                region.tally.add(seen, window.cleared_at, reads);
            }
        }
        Ok(())
    }

    /// Chooses and clears a window in each region that watches none and may clear one. The remaining asks of
    /// the batch clear memory that was never cleared.
    fn prepare(&mut self) -> Result<(), OpsError> {
        let RegionSampler { roster: Roster { targets, .. }, asks, attrs, rng, tick, .. } = self;
        let wanting = targets.iter().flat_map(|t| &t.regions).filter(|r| r.wants_window(*tick));
        let mut room =
            SWEPT_AT_ONCE.min((attrs.max_regions as usize).saturating_sub(wanting.count()));
        let mut windows = Vec::with_capacity(targets.len());
        asks.clear();
        for t in targets.iter_mut() {
            let first = asks.len();
            for r in t.regions.iter().filter(|r| r.wants_window(*tick)) {
                let range = choose_window(r.range, &t.mappings, attrs.window, rng);
                asks.push(Ask { target: t.id, range, clear: true });
            }
            windows.push(first..asks.len());
            let chunks = std::iter::from_fn(|| next_chunk(&mut t.unswept)).take(room);
            asks.extend(chunks.map(|range| Ask { target: t.id, range, clear: true }));
            room -= asks.len() - windows.last().map_or(0, |w| w.end);
        }
        self.look()?;
        let clear_every = self.clear_every();
        let RegionSampler { roster: Roster { targets, .. }, asks, seen, tick, .. } = self;
        for (t, windows) in targets.iter_mut().zip(windows) {
            let answers = asks.iter().zip(seen.iter()).take(windows.end).skip(windows.start);
            let wanting = t.regions.iter_mut().filter(|r| r.wants_window(*tick));
            for (region, (ask, seen)) in wanting.zip(answers) {
                region.watch(ask.range, seen, *tick, clear_every);
            }
        }
        Ok(())
    }

    fn clear_every(&self) -> u32 {
        self.attrs.clear_every.min(self.attrs.samples())
    }

    /// Answers `asks` into `seen`.
    fn look(&mut self) -> Result<(), OpsError> {
        self.seen.clear();
        if !self.asks.is_empty() {
            let cost = self.ops.look(&self.asks, &mut self.seen)?;
            self.cost += Cost { looks: 0, ..cost };
        }
        Ok(())
    }

    /// Ends an aggregation interval: computes rates and ages, merges, makes the snapshot, splits.
    fn aggregate(&mut self, now: Nanos) -> Arc<Snapshot> {
        self.all_regions_mut().for_each(Region::conclude);
        let highest = self.all_regions_mut().map(|r| r.accesses_bp).max().unwrap_or(0);
        let threshold = (highest / 10).max(self.noise_floor());
        self.roster.targets.iter_mut().for_each(|t| age_regions(&mut t.regions, threshold));
        self.merge(threshold);
        let snapshot = Arc::new(self.snapshot(now));
        let unit = self.attrs.min_region_size;
        self.all_regions_mut().for_each(|r| r.restart(unit));
        self.split();
        self.clock.interval_start = now;
        self.clock.samples_passed = 0;
        self.seq += 1;
        self.cost = Cost::default();
        snapshot
    }

    fn all_regions_mut(&mut self) -> impl Iterator<Item = &mut Region> {
        self.roster.targets.iter_mut().flat_map(|t| &mut t.regions)
    }

    /// Half the weight of one sampling interval, of 10,000: smaller differences between regions are noise.
    /// The kernel has the same floor because it counts whole intervals. Example: 250 of 10,000 at 20 samples.
    fn noise_floor(&self) -> u32 {
        5_000 / self.attrs.samples()
    }

    fn count(&self) -> usize {
        self.roster.targets.iter().map(|t| t.regions.len()).sum()
    }

    fn total(&self) -> u64 {
        self.roster.targets.iter().flat_map(|t| &t.regions).map(|r| r.range.len()).sum()
    }

    /// The size in bytes above which regions are cut so that there are at least [`Attrs::min_regions`]. It is
    /// doubled until the cuts cannot produce more than [`Attrs::max_regions`], because every area needs a
    /// region.
    fn region_limit(&self) -> u64 {
        let unit = self.attrs.min_region_size;
        let mut limit = size_limit(self.total(), self.attrs.min_regions, unit);
        let areas: Vec<u64> = self
            .roster
            .targets
            .iter()
            .flat_map(|t| join_touching(t.regions.iter().map(|r| r.range)))
            .map(|a| a.len())
            .collect();
        let cuts = |limit| areas.iter().map(|a| a.div_ceil(limit)).sum::<u64>();
        while cuts(limit) > u64::from(self.attrs.max_regions) && limit < u64::MAX / 2 {
            limit *= 2;
        }
        limit
    }

    fn merge(&mut self, threshold: u32) {
        let limit = self.region_limit();
        let unit = self.attrs.min_region_size;
        for t in &mut self.roster.targets {
            merge_regions(&mut t.regions, threshold, limit);
            apply_min_nr_regions(&mut t.regions, limit, unit);
        }
        self.fit(threshold);
    }

    /// Enforces [`Attrs::max_regions`] with as little loss as possible. It first merges regions that differ
    /// by at most `threshold` (at zero: the parts of the last split), then regions with larger differences,
    /// then larger regions. Regions are dropped only after each is a whole area, the smallest first, so that
    /// no area is covered in part.
    fn fit(&mut self, threshold: u32) {
        let max = self.attrs.max_regions as usize;
        let total = self.total();
        let (mut threshold, mut limit) = (threshold, self.region_limit());
        while self.count() > max {
            self.roster
                .targets
                .iter_mut()
                .for_each(|t| merge_regions(&mut t.regions, threshold, limit));
            if threshold < ANY_DIFFERENCE {
                threshold = (threshold * 2).clamp(self.noise_floor(), ANY_DIFFERENCE);
            } else if limit < total {
                limit = limit.saturating_mul(2);
            } else {
                break;
            }
        }
        if self.count() > max {
            self.leave_out_smallest(self.count() - max);
        }
    }

    fn leave_out_smallest(&mut self, excess: usize) {
        let mut sizes: Vec<u64> = self.all_regions_mut().map(|r| r.range.len()).collect();
        sizes.sort_unstable();
        let Some(&bound) = excess.checked_sub(1).and_then(|i| sizes.get(i)) else { return };
        let below = sizes.iter().filter(|&&s| s < bound).count();
        let mut equal = excess - below;
        for t in &mut self.roster.targets {
            let mut left_out = 0;
            t.regions.retain(|r| {
                let len = r.range.len();
                let drop = len < bound || (len == bound && equal > 0);
                if drop {
                    equal -= usize::from(len == bound);
                    left_out += len;
                }
                !drop
            });
            t.left_out += left_out;
        }
    }

    fn split(&mut self) {
        let max = self.attrs.max_regions as usize;
        let count = self.count();
        let before = if self.attrs.extra_split { self.last_count } else { 0 };
        let plan = SplitPlan::new(count, before, max, self.attrs.split_parts, self.turn);
        self.last_count = count;
        self.turn = self.turn.wrapping_add(1);
        let mut first = 0;
        for t in &mut self.roster.targets {
            let n = t.regions.len();
            let unit = self.attrs.min_region_size;
            let skip = |r: &Region| !self.attrs.split_uniform && r.stays_whole();
            split_regions(&mut t.regions, plan, first, unit, skip, &mut self.rng);
            first += n;
        }
    }

    /// Reads the mappings again, and fits the regions to them.
    fn update(&mut self, now: Nanos) -> Result<(), OpsError> {
        self.clock.next_update = now + self.attrs.update;
        let ops = &mut self.ops;
        self.roster.update(|t| {
            let mut mappings = Vec::with_capacity(t.mappings.len());
            let liveness = ops.mappings(t.id, &mut mappings)?;
            if liveness == Liveness::Replaced {
                t.regions.clear();
                t.unswept.clear();
                t.mappings = Arc::default();
            }
            if t.ran.is_none() {
                t.ran = ops.ran(t.id);
            }
            if *t.mappings != mappings {
                t.unswept = still_mapped(&t.unswept, &mappings);
                t.unswept.extend(new_parts(&t.mappings, &mappings));
                t.mappings = Arc::new(mappings);
            }
            Ok(liveness)
        })?;
        self.cover();
        Ok(())
    }

    /// Makes the regions cover the mapped memory.
    fn cover(&mut self) {
        let before = self.count();
        for t in &mut self.roster.targets {
            let areas = join_touching(t.mappings.iter().map(|m| m.range));
            t.regions = set_regions(&t.regions, &areas);
            t.left_out = 0;
        }
        let limit = self.region_limit();
        let unit = self.attrs.min_region_size;
        for t in &mut self.roster.targets {
            t.regions = std::mem::take(&mut t.regions)
                .into_iter()
                .flat_map(|r| {
                    let parts = r.range.len().div_ceil(limit);
                    evenly_split(r.range, parts, unit).into_iter().map(move |range| {
                        if range == r.range { r.clone() } else { r.resized(range) }
                    })
                })
                .collect();
        }
        self.fit(0);
        if before == 0 {
            self.last_count = self.count();
        }
    }

    fn snapshot(&mut self, now: Nanos) -> Snapshot {
        let interval = self.attrs.interval();
        let mut targets = Vec::with_capacity(self.roster.targets.len());
        for t in &mut self.roster.targets {
            let ran = ran_since(&mut t.ran, self.ops.ran(t.id));
            targets.push(TargetView {
                id: t.id,
                ran,
                mappings: Arc::clone(&t.mappings),
                left_out: t.left_out,
                dirty: None,
                regions: t.regions.iter().map(|r| view(r, interval)).collect(),
                ages: None,
            });
        }
        Snapshot {
            seq: self.seq,
            start: self.clock.interval_start,
            end: now,
            attrs: self.attrs,
            cost: self.cost,
            quality: None,
            targets,
        }
    }
}

impl<O: Space + Look> Source for RegionSampler<O> {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        if let Some(why) = self.roster.ended() {
            return Ok(Step::End(why));
        }
        if !self.clock.started {
            self.start(now)?;
            return Ok(self.roster.ended().map_or(Step::Wait(self.clock.next_sample), Step::End));
        }
        if now < self.clock.next_sample {
            return Ok(Step::Wait(self.clock.next_sample));
        }
        if now.since(self.clock.next_sample) > self.attrs.interval().max(MIN_GAP) {
            self.all_regions_mut().for_each(|r| r.window = None);
        }
        self.tick += 1;
        self.clock.samples_passed += 1;
        let due = self.clock.samples_passed >= self.attrs.samples();
        self.check(due)?;
        let snapshot = due.then(|| self.aggregate(now));
        if now >= self.clock.next_update {
            self.update(now)?;
        }
        if self.roster.ended().is_none() {
            self.prepare()?;
        }
        // A late step does not catch up on lost samples: it shifts the later ones.
        let next = self.clock.next_sample + self.attrs.sample;
        self.clock.next_sample = if next > now { next } else { now + self.attrs.sample };
        Ok(match (snapshot, self.roster.ended()) {
            (Some(s), _) => Step::Snapshot(s),
            (None, Some(why)) => Step::End(why),
            (None, None) => Step::Wait(self.clock.next_sample),
        })
    }
}

/// Maximum number of ranges per sampling interval that sweep memory which was never cleared: 16 MiB, about
/// 0.5 ms.
///
/// Initially every page is found accessed, so that each window would cost a clear before it gives
/// information. A range of 2 MiB costs little more to clear than one of 64 KiB.
const SWEPT_AT_ONCE: usize = 8;
const CHUNK: u64 = 2 << 20;

/// Removes the next part, of at most [`CHUNK`] bytes and within one multiple of it.
fn next_chunk(unswept: &mut Vec<AddrRange>) -> Option<AddrRange> {
    let rest = unswept.last_mut()?;
    let end = rest.end.min((rest.start / CHUNK + 1) * CHUNK);
    let chunk = AddrRange::new(rest.start, end);
    rest.start = end;
    if rest.is_empty() {
        unswept.pop();
    }
    Some(chunk)
}

/// The parts of observable mappings that were not mapped `before`; the lowest part is last.
fn new_parts(before: &[Mapping], mappings: &[Mapping]) -> Vec<AddrRange> {
    let regions: Vec<Region> = before.iter().map(|m| Region::new(m.range)).collect();
    let visible: Vec<AddrRange> =
        mappings.iter().filter(|m| m.unknown.is_none()).map(|m| m.range).collect();
    let is_new = |range: &AddrRange| {
        let i = regions.partition_point(|r| r.range.end <= range.start);
        regions.get(i).is_none_or(|r| r.range.start >= range.end)
    };
    set_regions(&regions, &visible).into_iter().rev().map(|r| r.range).filter(is_new).collect()
}

/// The parts of `ranges` that are still mapped.
fn still_mapped(ranges: &[AddrRange], mappings: &[Mapping]) -> Vec<AddrRange> {
    let parts_of = |range: &AddrRange| {
        let first = mappings.partition_point(|m| m.range.end <= range.start);
        let parts: Vec<AddrRange> =
            mappings.iter().skip(first).map_while(|m| m.range.intersect(range)).collect();
        parts.into_iter().rev()
    };
    ranges.iter().flat_map(parts_of).collect()
}

/// Chooses a random window of a region, within one mapping.
fn choose_window(
    region: AddrRange,
    mappings: &[Mapping],
    size: u64,
    rng: &mut Xoshiro256PlusPlus,
) -> AddrRange {
    let page = random_page(region, rng);
    let i = mappings.partition_point(|m| m.range.end <= page);
    let mapping = mappings.get(i).and_then(|m| m.range.intersect(&region));
    window_around(page, mapping.unwrap_or(region), size)
}

impl<O: Space + Look> Monitor for RegionSampler<O> {
    type Ops = O;

    fn ops(&mut self) -> &mut O {
        &mut self.ops
    }

    fn attrs(&self) -> Attrs {
        self.attrs
    }

    /// Keeps rates and converts ages; the current interval restarts with the next step.
    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        let new = attrs.checked()?;
        for r in self.roster.targets.iter_mut().flat_map(|t| &mut t.regions) {
            r.age = self.attrs.convert_age(r.age, &new);
            r.begin_anew();
        }
        self.roster.targets.iter_mut().for_each(|t| t.ran = None);
        self.attrs = new;
        self.clock = Clock::default();
        self.fit(0);
        Ok(())
    }

    fn set_targets(&mut self, ids: &[TargetId]) {
        let new = |id| Target {
            id,
            regions: Vec::new(),
            mappings: Arc::default(),
            left_out: 0,
            ran: None,
            unswept: Vec::new(),
        };
        self.roster.set(ids, new);
        self.clock.next_update = self.clock.next_sample;
    }

    fn outlive_targets(&mut self) {
        self.roster.outlive_targets();
    }

    fn stop(&mut self) {
        self.roster.stop();
    }
}
