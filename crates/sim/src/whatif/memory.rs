//! The simulated memory of all targets: its touches, and the effect of actions on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::MemoryMetrics;
use isotherm_core::{
    Act, Action, Applied, EARLY_DIVISOR, Nanos, OpsError, PAGE_SIZE, PageAges, PageFilter,
    PageKind, Pressure, RegionView, Snapshot, Support, TargetId, TargetView, Thresholds, Unknown,
    Work,
};

use super::samples::{Sample, Samples, Touches, visible_share};
use super::{DelayModel, Tier};

/// Samples of all targets at the start; later at most `MAX_GROWTH` times as many.
const SAMPLES: u64 = 2048;
const MAX_GROWTH: u64 = 4;
/// Time to look at a page before an action, in s: `docs/concepts/acting.md`.
const LOOK_SECONDS: f64 = 0.13e-6;
/// The same if page filters reject touched pages: only bits are read (`docs/measurements/cost.md`).
const LOOK_AT_BITS: f64 = 2e-9;

/// The memory of all targets.
#[derive(Debug, Default)]
pub(super) struct Memory {
    targets: BTreeMap<TargetId, Samples>,
    /// pages between two samples; a power of two, or zero before the first snapshot
    stride: u64,
    delays: DelayModel,
    /// the least age of memory that schemes page out, in s
    floor: f64,
    /// s
    now: f64,
    /// the length of the last step, in s
    step: f64,
    /// returned pages since the start
    returned: f64,
    /// paged-out bytes since the start
    pub paged_out: u64,
    /// bytes whose accesses cannot be observed, in the last snapshot: when they could go is not known
    unknown: f64,
}

impl Memory {
    /// The memory on which schemes act that page out what is untouched for `floor`, or zero.
    pub fn new(delays: DelayModel, floor: Duration) -> Self {
        Memory { delays, floor: floor.as_secs_f64(), ..Memory::default() }
    }

    /// Adds the ages of a target in a later snapshot.
    pub fn push(&mut self, target: TargetId, ages: &Arc<PageAges>, end: Nanos) {
        let begin = ages.begun.0 as f64 / 1e9;
        let samples = self.targets.entry(target);
        let new = || Samples::new(begin, u64::from(target.0), self.floor);
        let samples = samples.or_insert_with(new);
        samples.push(ages, end.0 as f64 / 1e9);
    }

    /// Advances the memory to the end of a snapshot.
    pub fn advance(&mut self, snapshot: &Snapshot) -> Touches {
        let to = snapshot.end.0 as f64 / 1e9;
        if self.now > 0.0 {
            self.step = to - self.now;
        }
        self.now = to;
        self.unknown = snapshot.targets.iter().flat_map(|t| &t.regions).map(unobservable).sum();
        self.fit(snapshot);
        let stride = self.stride;
        let mut all = Touches::default();
        // A target that is not in the snapshot has ended, but for those that are to come.
        let there = |id: &TargetId| snapshot.targets.binary_search_by_key(id, |t| t.id);
        self.targets.retain(|id, samples| match there(id) {
            Ok(i) => {
                if let Some(view) = snapshot.targets.get(i) {
                    all.add(&samples.advance(view, to, stride));
                }
                true
            }
            Err(_) => samples.all.is_empty(),
        });
        self.returned += all.returned;
        all
    }

    /// Sets the distance of the samples so that there are not too many, even if memory grows at once.
    fn fit(&mut self, snapshot: &Snapshot) {
        let regions = snapshot.targets.iter().flat_map(|t| &t.regions);
        let pages = regions.map(|r| visible_share(r) * (r.range.len() / PAGE_SIZE) as f64);
        let pages = pages.sum::<f64>() as u64;
        let least = |samples: u64| (pages / samples).max(1).next_power_of_two();
        if self.stride == 0 {
            self.stride = least(SAMPLES);
        }
        self.stride = self.stride.max(least(MAX_GROWTH * SAMPLES));
        let samples: usize = self.targets.values().map(|s| s.all.len()).sum();
        // Each region has a sample at any distance.
        let regions = snapshot.targets.iter().flat_map(|t| &t.regions);
        let least = regions.filter(|r| visible_share(r) > 0.0).count();
        if samples.saturating_sub(least) as u64 > MAX_GROWTH * SAMPLES && self.stride < 1 << 40 {
            self.stride *= 2;
        }
    }

    /// The snapshot with the memory as it would be: without what is paged out.
    pub fn corrected(&self, snapshot: &Snapshot) -> Snapshot {
        let correct = |view: &TargetView| match self.targets.get(&view.id) {
            Some(samples) => corrected(view, &samples.all),
            None => view.clone(),
        };
        Snapshot { targets: snapshot.targets.iter().map(correct).collect(), ..*snapshot }
    }

    /// Memory of known age, in bytes, and the part of it that is paged out.
    pub fn bytes(&self) -> (f64, f64) {
        let sum = |of: fn(&Samples) -> f64| self.targets.values().map(of).sum();
        (sum(Samples::bytes), sum(Samples::out_bytes))
    }

    /// The share of the memory whose accesses cannot be observed.
    pub fn unknown_share(&self) -> f64 {
        self.unknown / (self.unknown + self.bytes().0).max(1.0)
    }

    /// The figures of the memory that goals and watermarks use.
    pub fn figures(&self) -> MemoryMetrics {
        let (bytes, out) = self.bytes();
        let cold = Thresholds::default().cold_age.as_secs_f64();
        let samples = self.targets.values().flat_map(|s| &s.all);
        let young = samples.filter(|s| self.now - s.touched < cold).map(|s| s.pages).sum::<f64>();
        let stalled = self.delays.fault.mul_f64(self.returned.max(0.0));
        let major_faults = self.returned as u64;
        MemoryMetrics {
            pressure: Some(Pressure { stalled, major_faults, ..Pressure::default() }),
            resident: Some((bytes - out + self.unknown) as u64),
            working_set: Some(young as u64 * PAGE_SIZE),
        }
    }

    /// Moves what was untouched for longest down, from each tier that holds more than it may to the next. What
    /// the last one has no room for is paged out. Unknown memory stays in the first one. Returns the pages that moved down, by tier.
    pub fn settle(&mut self, tiers: &[Tier]) -> Vec<f64> {
        let mut samples: Vec<&mut Sample> =
            self.targets.values_mut().flat_map(|s| &mut s.all).collect();
        let mut moved = vec![0.0; tiers.len()];
        for (i, (tier, moved)) in tiers.iter().zip(&mut moved).enumerate() {
            let is_last = i + 1 == tiers.len();
            let in_tier = |s: &&mut Sample| usize::from(s.tier) == i && s.out < 1.0;
            let used: f64 = samples.iter().filter(|s| in_tier(s)).map(|s| s.pages).sum();
            let taken = if i == 0 { self.unknown } else { 0.0 };
            let mut over = used - (tier.bytes as f64 - taken).max(0.0) / PAGE_SIZE as f64;
            if over <= 0.0 {
                continue;
            }
            let mut here: Vec<&mut &mut Sample> =
                samples.iter_mut().filter(|s| in_tier(s)).collect();
            // About as many as have to go, the oldest first.
            let mean = used / here.len().max(1) as f64;
            while over > 0.0 && !here.is_empty() {
                let most = ((over / mean).ceil() as usize).clamp(1, here.len());
                here.select_nth_unstable_by(most - 1, |a, b| a.touched.total_cmp(&b.touched));
                for s in here.drain(..most) {
                    if over <= 0.0 {
                        break;
                    }
                    over -= s.pages;
                    *moved += s.pages;
                    if is_last {
                        self.paged_out += (s.pages * PAGE_SIZE as f64) as u64;
                        s.page_out(1.0, self.now);
                    } else {
                        s.tier += 1;
                    }
                }
            }
        }
        moved
    }

    /// Applies a work to the samples in its range, in order of address.
    fn work(&mut self, work: &Work<'_>) -> Result<Applied, OpsError> {
        if let Support::No(why) = self.supports(work.action) {
            return Err(OpsError::Failed(why));
        }
        let (now, step, delays) = (self.now, self.step, self.delays);
        let is_by_age = |f: &PageFilter| matches!(f.kind, PageKind::Touched { .. });
        let look =
            if work.filters.first().is_some_and(is_by_age) { LOOK_AT_BITS } else { LOOK_SECONDS };
        let price = match work.action {
            Action::Stat => 0.0,
            _ => delays.page_out.as_secs_f64(),
        };
        let recheck = work.recheck.as_secs_f64();
        let budget_pages = work.budget.bytes as f64 / PAGE_SIZE as f64;
        let budget_s = work.budget.time.as_secs_f64();
        let samples = self.targets.get_mut(&work.target);
        let all = &mut samples.ok_or(OpsError::NoTarget(work.target))?.all;
        let first = all.partition_point(|s| s.cell.end <= work.range.start);
        let (mut at, mut is_cut) = (work.range.start, false);
        let (mut pages, mut took) = (0.0, 0.0);
        for s in all.iter_mut().skip(first).take_while(|s| s.cell.start < work.range.end) {
            let Some(part) = s.cell.intersect(&work.range) else { continue };
            let share = part.len() as f64 / s.cell.len().max(1) as f64;
            let age = now - s.touched;
            let unknown = |within| delay(&delays, s.dice(), within);
            let is_allowed = allows(work.filters, age, step, unknown);
            let wanted = match work.action {
                _ if !is_allowed || age < recheck => 0.0,
                Action::PageOut => share.min(1.0 - s.out),
                Action::WillNeed => share.min(s.out),
                _ => share,
            };
            let needed = s.pages * wanted;
            let time = needed * price + s.pages * share * look;
            let (room, left) = (budget_pages - pages, budget_s - took);
            // The part of it that fits the budget.
            let fits = f64::min(room / needed.max(1e-9), left / time.max(1e-12)).clamp(0.0, 1.0);
            match work.action {
                Action::PageOut if wanted > 0.0 => s.page_out(wanted * fits, now),
                Action::WillNeed => s.out -= wanted * fits,
                _ => {}
            }
            pages += needed * fits;
            took += time * fits;
            if fits < 1.0 {
                let over = (part.len() as f64 * fits / PAGE_SIZE as f64).ceil() as u64;
                at = (part.start + over * PAGE_SIZE).min(part.end);
                is_cut = true;
                break;
            }
        }
        let end = if is_cut { at } else { work.range.end };
        let over = end - work.range.start;
        let tried = ((pages.round() as u64) * PAGE_SIZE).min(over);
        if *work.action == Action::PageOut {
            self.paged_out += tried;
        }
        let took = Duration::try_from_secs_f64(took).unwrap_or(Duration::MAX);
        Ok(Applied { tried, applied: tried, passed: over - tried, took, failure: None })
    }
}

impl Touches {
    fn add(&mut self, other: &Touches) {
        self.returned += other.returned;
        if self.by_tier.len() < other.by_tier.len() {
            self.by_tier.resize(other.by_tier.len(), 0.0);
        }
        self.by_tier.iter_mut().zip(&other.by_tier).for_each(|(a, b)| *a += b);
    }
}

/// Bytes of a region whose accesses cannot be observed, however long it is watched.
fn unobservable(region: &RegionView) -> f64 {
    let whys = Unknown::ALL.into_iter().filter(|why| *why != Unknown::Unseen);
    whys.map(|why| region.unknown_bytes(why) as f64).sum()
}

fn corrected(view: &TargetView, samples: &[Sample]) -> TargetView {
    let mut rest = samples;
    let regions = view.regions.iter().map(|region| {
        let here = rest.partition_point(|s| s.cell.start < region.range.end);
        let (inside, behind) = rest.split_at(here);
        rest = behind;
        let pages: f64 = inside.iter().map(|s| s.pages).sum();
        let out: f64 = inside.iter().map(|s| s.pages * s.out).sum();
        let gone = visible_share(region) * 1e4 * out / pages.max(1e-9);
        let resident_bp = region.resident_bp.saturating_sub(gone.round() as u32);
        RegionView { resident_bp, ..*region }
    });
    TargetView {
        regions: regions.collect(),
        mappings: Arc::clone(&view.mappings),
        ages: None,
        ..*view
    }
}

/// The time in s after the last touch of a page from which its age seems to count, if a scheme demands an age `within`
/// which it was not touched. The dice say when its bit is read and cleared.
fn delay(delays: &DelayModel, (read, clear): (f64, f64), within: f64) -> f64 {
    let found = read * delays.read_every.as_secs_f64();
    let cleared = found + clear * delays.clear_every.as_secs_f64();
    found.max(cleared - within / f64::from(EARLY_DIVISOR))
}

/// Whether page filters allow a page that was touched this long ago: the first one that it matches decides. `delay` is
/// the time for which the age of a page is not known.
fn allows(filters: &[PageFilter], age: f64, step: f64, delay: impl Fn(f64) -> f64) -> bool {
    let is = |kind| match kind {
        PageKind::Young => age < step,
        PageKind::Touched { within } => {
            let within = within.as_secs_f64();
            age < within || age - delay(within) < within
        }
        // Pages are small, and there is one node.
        PageKind::HugePage { .. } => false,
        PageKind::Node(n) => n == 0,
    };
    let found = filters.iter().find(|f| is(f.kind) == f.matching);
    found.map_or(filters.last().is_none_or(|last| !last.allow), |f| f.allow)
}

impl Act for Memory {
    fn supports(&self, action: &Action) -> Support {
        match action {
            Action::PageOut | Action::WillNeed | Action::Stat => Support::Yes,
            other => Support::No(format!(
                "{} cannot be played: a record does not show what depends on it",
                other.name()
            )),
        }
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        works.iter().try_for_each(|work| {
            out.push(self.work(work)?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{AddrRange, Attrs, Cost, Rate, UnknownPages};

    use super::*;

    /// A target of 1 MiB allocates 1 TiB between two looks.
    #[test]
    fn memory_that_grows_at_once_has_few_samples() {
        let mut memory = memory();
        let samples = [1 << 20, 1 << 40].map(|bytes| {
            memory.advance(&snapshot(memory.now as u64, [AddrRange::new(0, bytes)]));
            memory.targets[&TargetId(1)].all.len() as u64
        });
        assert_eq!(samples, [256, MAX_GROWTH * SAMPLES]);
    }

    /// Found by a review: the samples of large regions became ever fewer, until each region had one.
    #[test]
    fn many_regions_leave_samples_to_the_large_ones() {
        let large = 1 << 30;
        let small = (0..9000).map(|i| large + i * 4 * PAGE_SIZE);
        let small = small.map(|at| AddrRange::new(at, at + 2 * PAGE_SIZE));
        let all: Vec<AddrRange> = [AddrRange::new(0, large)].into_iter().chain(small).collect();
        let mut memory = memory();
        for second in 0..40 {
            memory.advance(&snapshot(second, all.iter().copied()));
        }
        let samples = &memory.targets[&TargetId(1)].all;
        let of_large = samples.iter().filter(|s| s.cell.start < large).count();
        assert!(of_large > 1000, "{of_large} of {}", samples.len());
    }

    fn memory() -> Memory {
        let mut memory = Memory::new(DelayModel::default(), Duration::ZERO);
        memory.push(TargetId(1), &Arc::new(PageAges::default()), Nanos(5_000_000_000));
        memory
    }

    fn snapshot(second: u64, ranges: impl IntoIterator<Item = AddrRange>) -> Snapshot {
        let region = |range| RegionView {
            range,
            accesses_bp: 100,
            age: Duration::ZERO,
            rate: Rate { hz: 1.0, low: 1.0, high: 1.0 },
            touched_bp: 10_000,
            resident_bp: 10_000,
            unknown_bp: UnknownPages::default(),
            support: None,
        };
        let view = TargetView {
            id: TargetId(1),
            ran: None,
            mappings: Arc::default(),
            left_out: 0,
            dirty: None,
            regions: ranges.into_iter().map(region).collect(),
            ages: None,
        };
        Snapshot {
            seq: second,
            start: Nanos(second * 1_000_000_000),
            end: Nanos((second + 1) * 1_000_000_000),
            attrs: Attrs::default(),
            cost: Cost::default(),
            quality: None,
            targets: vec![view],
        }
    }

    #[test]
    fn a_touch_is_known_late() {
        let of = |delays, within| delay(&delays, (1.0, 1.0), within);
        assert_eq!(of(DelayModel::default(), 10.0), 0.0);
        let monitor = DelayModel::default().with_monitor();
        assert!((of(monitor, 10.0) - 3.7).abs() < 1e-9, "cleared after 6.2 s, less 2.5 s");
        assert_eq!(of(monitor, 30.0), 1.0, "a quarter of the age is more than the clear takes");
    }
}
