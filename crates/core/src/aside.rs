//! Mappings whose accesses no accessed bit tells of: somebody else may know of them.

use std::time::Duration;

use rand_core::Rng;

use crate::ops::{Ask, Mapping, Seen, TargetId, Unknown};
use crate::range::{AddrRange, PAGE_SIZE};
use crate::region::{Region, random_page, set_regions, window_around};
use crate::sampler::view;
use crate::snapshot::RegionView;
use crate::survey::{BLOCK_SIZE, Block};

/// Looks at each of them at a time, and at most so many in all.
const LOOKS: usize = 4;
pub(crate) const MOST_ASKS: usize = 128;

/// A region for each mapping that cannot be seen.
#[derive(Debug, Default)]
pub(crate) struct Aside(Vec<Region>);

impl Aside {
    /// Takes in the mappings, which are sorted and disjoint.
    pub fn map(&mut self, mappings: &[Mapping]) {
        let unseen = mappings.iter().filter(|m| m.unknown.is_some()).map(|m| m.range);
        self.0 = set_regions(&self.0, &unseen.collect::<Vec<AddrRange>>());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Random windows of each that is chosen.
    pub fn asks(
        &self,
        target: TargetId,
        rng: &mut impl Rng,
        window: u64,
        is_chosen: impl Fn(AddrRange) -> bool,
    ) -> Vec<Ask> {
        let mut asks = Vec::new();
        let chosen = self.0.iter().filter(|r| is_chosen(r.range));
        for r in chosen.take(MOST_ASKS / LOOKS) {
            for _ in 0..LOOKS {
                let range = window_around(random_page(r.range, rng), r.range, window);
                asks.push(Ask { target, range, clear: false });
            }
        }
        asks
    }

    /// Where they are.
    pub fn ranges(&self) -> Vec<AddrRange> {
        self.0.iter().map(|r| r.range).collect()
    }

    /// Takes in which memory of them is resident. `mappings` say why it cannot be seen.
    pub fn see(&mut self, blocks: &[Block], mappings: &[Mapping]) {
        for r in &mut self.0 {
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
    }

    /// Takes in an answer, if it is about one of them.
    pub fn hear(&mut self, ask: &Ask, seen: &Seen) -> bool {
        let at = self.0.partition_point(|r| r.range.end <= ask.range.start);
        let Some(r) = self.0.get_mut(at).filter(|r| r.range.contains(ask.range.start)) else {
            return false;
        };
        r.tally.add(seen, seen.since.unwrap_or(seen.read_at), 1);
        true
    }

    /// What was heard in an interval of this length; the next one begins.
    pub fn views(&mut self, interval: Duration) -> Vec<RegionView> {
        let tell = |r: &mut Region| {
            // What was last known stays, until it is looked at again.
            if r.tally.looks > 0 {
                r.conclude();
            }
            let view = view(r, interval);
            r.restart(u64::MAX / 4);
            view
        };
        self.0.iter_mut().map(tell).collect()
    }
}
