//! Mappings whose accesses no accessed bit shows. Another way to look may observe them.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_core::Rng;

use crate::call::TargetId;
use crate::ops::{Ask, Mapping, Seen};
use crate::range::{AddrRange, PAGE_SIZE};
use crate::region::{Region, age_regions, random_page, set_regions, window_around};
use crate::region_view::view;
use crate::snapshot::RegionView;
use crate::support::RateSupport;
use crate::survey::{BLOCK_SIZE, Block};
use crate::unknown::Unknown;

/// Number of looks at each mapping at a time; [`MAX_ASKS`] limits their total.
const LOOKS: usize = 4;
pub(crate) const MAX_ASKS: usize = 128;

/// Smaller differences of heat count as the same heat, in basis points.
const SAME_HEAT_BP: u32 = 1_000;

/// One region for each unobservable mapping. Ages are in ms, because looks come at irregular times.
#[derive(Debug, Default)]
pub(crate) struct UnobservableMappings {
    regions: Vec<Region>,
    /// start addresses of the mappings with an answer, and for how many reads it still counts: until their next turn
    heard: BTreeMap<u64, usize>,
    /// position in the rotation among the chosen mappings
    turn: usize,
}

/// The next `most` of `all` in a rotation, which has reached `turn`.
pub(crate) fn next_in_turn<'a, T>(
    all: &'a [T],
    most: usize,
    turn: &mut usize,
) -> impl Iterator<Item = &'a T> {
    let n = all.len().min(most);
    *turn = (*turn + n) % all.len().max(1);
    all.iter().cycle().skip(*turn).take(n)
}

impl UnobservableMappings {
    /// Applies the mappings, which are sorted and disjoint.
    pub fn map(&mut self, mappings: &[Mapping]) {
        let unseen = mappings.iter().filter(|m| m.unknown.is_some()).map(|m| m.range);
        self.regions = set_regions(&self.regions, &unseen.collect::<Vec<AddrRange>>());
    }

    /// Number of unobservable mappings.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Random windows of each chosen mapping. Of many mappings, each has its turn.
    pub fn asks(
        &mut self,
        target: TargetId,
        rng: &mut impl Rng,
        window: u64,
        is_chosen: impl Fn(AddrRange) -> bool,
    ) -> Vec<Ask> {
        let mut asks = Vec::new();
        let mut chosen = self.ranges();
        chosen.retain(|mapping| is_chosen(*mapping));
        for &mapping in next_in_turn(&chosen, MAX_ASKS / LOOKS, &mut self.turn) {
            for _ in 0..LOOKS {
                let range = window_around(random_page(mapping, rng), mapping, window);
                asks.push(Ask { target, range, clear: false });
            }
        }
        asks
    }

    /// Address ranges of the mappings.
    pub fn ranges(&self) -> Vec<AddrRange> {
        self.regions.iter().map(|r| r.range).collect()
    }

    /// Notes which memory is resident in mappings without an answer. `mappings` give the reason why it cannot
    /// be observed.
    pub fn see(&mut self, blocks: &[Block], mappings: &[Mapping]) {
        let heard = &self.heard;
        for r in self.regions.iter_mut().filter(|r| !heard.contains_key(&r.range.start)) {
            let at = mappings.partition_point(|m| m.range.end <= r.range.start);
            let why = mappings.get(at).and_then(|m| m.unknown).unwrap_or(Unknown::Special);
            let pages = u32::try_from(r.range.len() / PAGE_SIZE).unwrap_or(u32::MAX);
            let mut seen = Seen { pages, ..Seen::default() };
            let first = blocks.partition_point(|b| b.start + BLOCK_SIZE <= r.range.start);
            for b in blocks.iter().skip(first).take_while(|b| b.start < r.range.end) {
                let block = AddrRange::new(b.start, b.start + BLOCK_SIZE);
                let Some(part) = block.intersect(&r.range) else { continue };
                let page = |addr: u64| ((addr - b.start) / PAGE_SIZE) as usize;
                let resident = b.resident.count_in(page(part.start), page(part.end));
                seen.unknown.0[why.index()] += resident;
            }
            r.tally.add(&seen, seen.read_at, 1);
        }
        self.heard.retain(|_, reads| {
            *reads -= 1;
            *reads > 0
        });
    }

    /// Applies an answer if it concerns one of these mappings. Returns whether it does.
    pub fn take_answer(&mut self, ask: &Ask, seen: &Seen) -> bool {
        // Between two reads, there may be one turn only.
        let reads = self.regions.len().div_ceil(MAX_ASKS / LOOKS);
        let at = self.regions.partition_point(|r| r.range.end <= ask.range.start);
        let Some(r) = self.regions.get_mut(at).filter(|r| r.range.contains(ask.range.start)) else {
            return false;
        };
        r.tally.add(seen, seen.since.unwrap_or(seen.read_at), 1);
        self.heard.insert(r.range.start, reads);
        true
    }

    /// Number of resident pages at the last look, without memory of the kernel and of devices: nothing charges it to
    /// the target, and no limit bounds it.
    pub fn resident_pages(&self) -> u64 {
        let pages = |r: &Region| {
            let reasons = Unknown::ALL.into_iter().filter(|why| *why != Unknown::Special);
            let unknown: f64 = reasons.map(|why| r.shares.unknown[why.index()]).sum();
            ((r.shares.visible + unknown) * (r.range.len() / PAGE_SIZE) as f64).round() as u64
        };
        self.regions.iter().map(pages).sum()
    }

    /// The regions for an interval of this length; starts the next interval.
    pub fn views(&mut self, interval: Duration) -> Vec<RegionView> {
        let passed = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
        let tell = |r: &mut Region| {
            // The last known value stays until the next look.
            let looked = r.tally.looks > 0;
            if looked {
                r.conclude();
            }
            let age = r.age;
            age_regions(std::slice::from_mut(r), SAME_HEAT_BP);
            // `age_regions` counts intervals.
            r.age = if r.age > 0 { age.saturating_add(passed) } else { 0 };
            r.restart(u64::MAX / 4);
            let view = view(r, Duration::from_millis(1));
            let support = if looked { RateSupport::MEASURED } else { RateSupport::OLD };
            RegionView { support: Some(support), ..view }
        };
        self.regions.iter_mut().map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::ops::MappingKind;
    use crate::page_mask::PageMask;
    use crate::time::Nanos;

    const RANGE: AddrRange = AddrRange { start: 0, end: 16 * PAGE_SIZE };

    fn locked() -> Vec<Mapping> {
        mapped(Unknown::Mlocked)
    }

    fn mapped(why: Unknown) -> Vec<Mapping> {
        let unknown = Some(why);
        vec![Mapping { range: RANGE, kind: MappingKind::Anonymous, name: "".into(), unknown }]
    }

    fn all_there() -> Vec<Block> {
        let (resident, young) = (PageMask::span(0, 16), PageMask::default());
        vec![Block { start: 0, huge: false, resident, young, read_at: Nanos(0) }]
    }

    #[test]
    fn all_mappings_have_their_turn() {
        let at = |i: u64| AddrRange::new(i * 32 * PAGE_SIZE, (i * 32 + 16) * PAGE_SIZE);
        let mapping = |i| Mapping { range: at(i), ..locked()[0].clone() };
        let mut unobservable = UnobservableMappings::default();
        unobservable.map(&(0..40).map(mapping).collect::<Vec<_>>());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut ask = || unobservable.asks(TargetId(1), &mut rng, RANGE.len(), |_| true);
        let asked: BTreeSet<u64> = [ask(), ask()].iter().flatten().map(|a| a.range.start).collect();
        assert_eq!(asked, (0..40).map(|i| at(i).start).collect());
    }

    /// Of 80 mappings, 32 have answers between two reads.
    #[test]
    fn what_is_known_stays_so_until_the_next_turn() {
        let at = |i: u64| AddrRange::new(i * 32 * PAGE_SIZE, (i * 32 + 16) * PAGE_SIZE);
        let mapping = |i| Mapping { range: at(i), ..locked()[0].clone() };
        let mappings: Vec<Mapping> = (0..80).map(mapping).collect();
        let mut unobservable = UnobservableMappings::default();
        unobservable.map(&mappings);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (resident, young) = (PageMask::span(0, 512), PageMask::default());
        let block =
            |i| Block { start: i * BLOCK_SIZE, huge: false, resident, young, read_at: Nanos(0) };
        let blocks: Vec<Block> = (0..5).map(block).collect();
        for turn in 0..9 {
            for ask in unobservable.asks(TargetId(1), &mut rng, RANGE.len(), |_| true) {
                let seen = Seen { pages: 16, present: 16, ..Seen::default() };
                assert!(unobservable.take_answer(&ask, &seen));
            }
            unobservable.see(&blocks, &mappings);
            let views = unobservable.views(Duration::from_secs(1));
            let unknown = views.iter().filter(|v| v.unknown_bp.total() > 0).count();
            assert_eq!(unknown, 80usize.saturating_sub(32 * (turn + 1)), "{turn}");
        }
    }

    #[test]
    fn observed_memory_ages_and_is_known() {
        let mut unobservable = UnobservableMappings::default();
        unobservable.map(&locked());
        let interval = Duration::from_millis(300);
        let ask = Ask { target: TargetId(1), range: RANGE, clear: false };
        for n in 1..30u32 {
            if n % 3 == 1 {
                let read_at = Nanos(u64::from(n) * 300_000_000);
                let seen = Seen { pages: 16, present: 16, read_at, ..Seen::default() };
                assert!(unobservable.take_answer(&ask, &seen));
            }
            if n % 3 == 0 {
                unobservable.see(&all_there(), &locked());
            }
            let view = unobservable.views(interval)[0];
            assert_eq!((view.resident_bp, view.unknown_bp.total()), (10_000, 0), "{n}");
            assert_eq!(view.age, interval * n);
            let asked = if n % 3 == 1 { RateSupport::MEASURED } else { RateSupport::OLD };
            assert_eq!(view.support, Some(asked), "{n}");
        }
    }

    #[test]
    fn unobserved_memory_is_unknown() {
        let mut unobservable = UnobservableMappings::default();
        unobservable.map(&locked());
        for _ in 0..3 {
            unobservable.see(&all_there(), &locked());
            let view = unobservable.views(Duration::from_secs(1))[0];
            assert_eq!(view.unknown_bp.0[Unknown::Mlocked.index()], 10_000);
            assert_eq!(view.age, Duration::ZERO);
        }
    }

    #[test]
    fn memory_of_devices_is_no_memory_of_the_target() {
        for (why, pages) in [(Unknown::Kvm, 16), (Unknown::Special, 0)] {
            let mut unobservable = UnobservableMappings::default();
            unobservable.map(&mapped(why));
            assert_eq!(unobservable.resident_pages(), 0, "not looked at yet");
            unobservable.see(&all_there(), &mapped(why));
            unobservable.views(Duration::from_secs(1));
            assert_eq!(unobservable.resident_pages(), pages, "{why:?}");
        }
    }
}
