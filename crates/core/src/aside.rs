//! Mappings whose accesses no accessed bit tells of: somebody else may know of them.

use std::time::Duration;

use rand_core::Rng;

use crate::ops::{Ask, Mapping, Seen, TargetId};
use crate::range::AddrRange;
use crate::region::{Region, random_page, set_regions, window_around};
use crate::sampler::view;
use crate::snapshot::RegionView;

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

    /// Random windows of each.
    pub fn asks(&self, target: TargetId, rng: &mut impl Rng, window: u64) -> Vec<Ask> {
        let mut asks = Vec::new();
        for r in self.0.iter().take(MOST_ASKS / LOOKS) {
            for _ in 0..LOOKS {
                let range = window_around(random_page(r.range, rng), r.range, window);
                asks.push(Ask { target, range, clear: false });
            }
        }
        asks
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
            r.conclude();
            let view = view(r, interval);
            r.restart(u64::MAX / 4);
            view
        };
        self.0.iter_mut().map(tell).collect()
    }
}
