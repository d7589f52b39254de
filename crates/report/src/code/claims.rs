//! Which sampled fault each page of a target belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_core::{AddrRange, CodeMapping, Fault, FaultKind};

/// A sampled page, and the code that touched it first.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub range: AddrRange,
    pub weight: u64,
    pub thread: Arc<str>,
    pub frames: Arc<[u64]>,
    /// the files that the target executed at that time
    pub code: Arc<Vec<CodeMapping>>,
    pub resident: bool,
}

/// The sampled pages of one target.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_start: BTreeMap<u64, Claim>,
    /// the files that it executes now
    pub code: Arc<Vec<CodeMapping>>,
}

impl Claims {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Claim> {
        self.by_start.values()
    }

    /// Adds a fault, or a change of sampled pages. A page belongs to its latest minor fault. A major fault
    /// brings back what was there before, so that the page keeps its owner if it has one.
    pub(crate) fn push(&mut self, f: &Fault) {
        match f.kind {
            FaultKind::Minor => {
                self.remove(f.range);
                self.insert(f);
            }
            FaultKind::Major if self.by_start.contains_key(&f.range.start) => {
                self.set_resident(f.range, true);
            }
            FaultKind::Major => self.insert(f),
            FaultKind::Freed => self.remove(f.range),
            FaultKind::Swapped => self.set_resident(f.range, false),
            FaultKind::Returned => self.set_resident(f.range, true),
        }
    }

    fn insert(&mut self, f: &Fault) {
        let claim = Claim {
            range: f.range,
            weight: f.weight,
            thread: Arc::clone(&f.thread),
            frames: Arc::clone(&f.frames),
            code: Arc::clone(&self.code),
            resident: true,
        };
        self.by_start.insert(f.range.start, claim);
    }

    fn remove(&mut self, range: AddrRange) {
        if range == AddrRange::new(0, u64::MAX) {
            self.by_start.clear();
        }
        let inside: Vec<u64> =
            self.by_start.range(range.start..range.end).map(|(&start, _)| start).collect();
        inside.iter().for_each(|start| {
            self.by_start.remove(start);
        });
    }

    fn set_resident(&mut self, range: AddrRange, resident: bool) {
        let inside = self.by_start.range_mut(range.start..range.end);
        inside.for_each(|(_, claim)| claim.resident = resident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::tests::fault;

    fn starts(claims: &Claims) -> Vec<(u64, u64, bool)> {
        claims.all().map(|c| (c.range.start, c.frames[0], c.resident)).collect()
    }

    #[test]
    fn a_page_belongs_to_its_latest_first_touch() {
        let mut claims = Claims::default();
        claims.push(&fault(FaultKind::Minor, 0x1000, 1));
        claims.push(&fault(FaultKind::Minor, 0x2000, 1));
        claims.push(&fault(FaultKind::Minor, 0x1000, 2));
        assert_eq!(starts(&claims), [(0x1000, 2, true), (0x2000, 1, true)]);
        claims.push(&fault(FaultKind::Swapped, 0x1000, 0));
        assert_eq!(starts(&claims)[0], (0x1000, 2, false));
        claims.push(&fault(FaultKind::Major, 0x1000, 3));
        assert_eq!(starts(&claims)[0], (0x1000, 2, true), "who brings it back does not own it");
        claims.push(&fault(FaultKind::Major, 0x3000, 3));
        claims.push(&fault(FaultKind::Freed, 0x2000, 0));
        assert_eq!(starts(&claims), [(0x1000, 2, true), (0x3000, 3, true)]);
    }

    #[test]
    fn another_program_and_a_huge_page_replace_earlier_pages() {
        let mut claims = Claims::default();
        for at in [0x20_0000, 0x20_1000, 0x40_0000] {
            claims.push(&fault(FaultKind::Minor, at, 1));
        }
        let mut huge = fault(FaultKind::Minor, 0x20_0000, 2);
        huge.range.end = 0x40_0000;
        claims.push(&huge);
        assert_eq!(starts(&claims), [(0x20_0000, 2, true), (0x40_0000, 1, true)]);
        let mut all = fault(FaultKind::Freed, 0, 0);
        all.range.end = u64::MAX;
        claims.push(&all);
        assert_eq!(starts(&claims), []);
    }
}
