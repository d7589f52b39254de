//! Which sampled fault or allocation the memory of a target belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_core::{AddrRange, CodeMapping, Fault, FaultKind, Nanos};

/// A sampled page or allocation, and the code that touched it first or allocated it.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub at: Nanos,
    pub range: AddrRange,
    pub weight: u64,
    pub thread: Arc<str>,
    pub frames: Arc<[u64]>,
    /// the files that the target executed at that time
    pub code: Arc<Vec<CodeMapping>>,
    /// Always true for allocations, because the regions state how much of them is resident.
    pub resident: bool,
}

/// The sampled pages and allocations of one target.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// By the first address and the length: a page of a huge page may have got another owner.
    pages: BTreeMap<(u64, u64), Claim>,
    allocations: BTreeMap<u64, Claim>,
    /// Allocations of the present program were sampled.
    pub has_allocations: bool,
}

impl Claims {
    /// The sampled pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = &Claim> {
        self.pages.values()
    }

    /// The share of a sampled huge page that other code has filled since, estimated from its sampled pages.
    pub(crate) fn refilled(&self, huge: &Claim) -> f64 {
        let inside = self.pages.range((huge.range.start, 0)..(huge.range.end, 0));
        let pages = inside.filter(|(_, c)| c.resident && c.range.len() < huge.range.len());
        let bytes: f64 = pages.map(|(_, c)| c.weight as f64 * c.range.len() as f64).sum();
        (bytes / huge.range.len() as f64).min(1.0)
    }

    /// The sampled allocations that have not ended.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = &Claim> {
        self.allocations.values()
    }

    /// Adds a fault, or a change of sampled pages. A page belongs to its latest minor fault. A major fault brings back
    /// what was there before, so that the page keeps its owner.
    pub(crate) fn push(&mut self, f: &Fault, code: &Arc<Vec<CodeMapping>>) {
        match f.kind {
            FaultKind::Minor => {
                self.remove(f.range);
                self.pages.insert((f.range.start, f.range.len()), claim(f, code));
            }
            FaultKind::Freed => self.remove(f.range),
            FaultKind::Swapped => self.set_resident(f.range, false),
            FaultKind::Returned | FaultKind::Major => self.set_resident(f.range, true),
            FaultKind::Allocated => {
                self.has_allocations = true;
                self.end_overlapped(f.range);
                self.allocations.insert(f.range.start, claim(f, code));
            }
            // The address may have been allocated again before, if samples of two CPUs arrive late.
            FaultKind::Released => {
                let ended = self.allocations.get(&f.range.start).is_some_and(|c| c.at <= f.at);
                if ended {
                    self.allocations.remove(&f.range.start);
                }
            }
        }
    }

    /// Ends the allocations that a new one overlaps: their release was lost.
    fn end_overlapped(&mut self, range: AddrRange) {
        let before = self.allocations.range(..range.start).next_back();
        let before = before.filter(|(_, c)| c.range.end > range.start).map(|(&start, _)| start);
        let inside = self.allocations.range(range.start..range.end.max(range.start));
        let ended: Vec<u64> = before.into_iter().chain(inside.map(|(&start, _)| start)).collect();
        ended.iter().for_each(|start| {
            self.allocations.remove(start);
        });
    }

    fn remove(&mut self, range: AddrRange) {
        if range == AddrRange::new(0, u64::MAX) {
            self.pages.clear();
            self.allocations.clear();
            self.has_allocations = false;
        }
        let inside: Vec<_> = self.pages_in(range).map(|(&key, _)| key).collect();
        inside.iter().for_each(|key| {
            self.pages.remove(key);
        });
    }

    fn set_resident(&mut self, range: AddrRange, resident: bool) {
        self.pages_in(range).for_each(|(_, claim)| claim.resident = resident);
    }

    /// The sampled pages that are in the range, but no huge page of which it is a part.
    fn pages_in(&mut self, range: AddrRange) -> impl Iterator<Item = (&(u64, u64), &mut Claim)> {
        let pages = self.pages.range_mut((range.start, 0)..(range.end, 0));
        pages.filter(move |(_, c)| c.range.end <= range.end)
    }
}

/// The claim that begins with a fault, while its target executes `code`.
fn claim(f: &Fault, code: &Arc<Vec<CodeMapping>>) -> Claim {
    Claim {
        at: f.at,
        range: f.range,
        weight: f.weight,
        thread: Arc::clone(&f.thread),
        frames: Arc::clone(&f.frames),
        code: Arc::clone(code),
        resident: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::tests::fault;

    fn starts(claims: &Claims) -> Vec<(u64, u64, bool)> {
        claims.pages().map(|c| (c.range.start, c.frames[0], c.resident)).collect()
    }

    #[test]
    fn a_page_belongs_to_its_latest_first_touch() {
        let mut claims = Claims::default();
        claims.push(&fault(FaultKind::Minor, 0x1000, 1), &Arc::default());
        claims.push(&fault(FaultKind::Minor, 0x2000, 1), &Arc::default());
        claims.push(&fault(FaultKind::Minor, 0x1000, 2), &Arc::default());
        assert_eq!(starts(&claims), [(0x1000, 2, true), (0x2000, 1, true)]);
        claims.push(&fault(FaultKind::Swapped, 0x1000, 0), &Arc::default());
        assert_eq!(starts(&claims)[0], (0x1000, 2, false));
        claims.push(&fault(FaultKind::Major, 0x1000, 3), &Arc::default());
        assert_eq!(starts(&claims)[0], (0x1000, 2, true), "who brings it back does not own it");
        claims.push(&fault(FaultKind::Major, 0x3000, 3), &Arc::default());
        claims.push(&fault(FaultKind::Freed, 0x2000, 0), &Arc::default());
        assert_eq!(starts(&claims), [(0x1000, 2, true)], "nor what nobody is known to own");
    }

    #[test]
    fn an_allocation_lasts_until_its_own_release() {
        let mut claims = Claims::default();
        let at = |kind, address, ns, frame| Fault { at: Nanos(ns), ..fault(kind, address, frame) };
        claims.push(&at(FaultKind::Allocated, 0x1010, 10, 1), &Arc::default());
        claims.push(&at(FaultKind::Allocated, 0x5010, 11, 1), &Arc::default());
        claims.push(&at(FaultKind::Released, 0x1010, 20, 0), &Arc::default());
        assert_eq!(claims.allocations().map(|c| c.range.start).collect::<Vec<_>>(), [0x5010]);
        // Another thread allocated the address again, and this was reported before the release.
        claims.push(&at(FaultKind::Allocated, 0x5010, 31, 2), &Arc::default());
        claims.push(&at(FaultKind::Released, 0x5010, 30, 0), &Arc::default());
        assert_eq!(claims.allocations().map(|c| c.frames[0]).collect::<Vec<_>>(), [2]);
        // The release of this one was lost.
        claims.push(&at(FaultKind::Allocated, 0x4f00, 32, 3), &Arc::default());
        assert_eq!(claims.allocations().map(|c| c.frames[0]).collect::<Vec<_>>(), [3]);
        // Pages do not end allocations, but another program does.
        claims.push(&at(FaultKind::Freed, 0x5000, 40, 0), &Arc::default());
        assert_eq!(claims.allocations().count(), 1);
        let all = AddrRange::new(0, u64::MAX);
        claims.push(&Fault { range: all, ..at(FaultKind::Freed, 0, 50, 0) }, &Arc::default());
        assert!(claims.allocations().count() == 0 && !claims.has_allocations);
    }

    #[test]
    fn another_program_and_a_huge_page_replace_earlier_pages() {
        let mut claims = Claims::default();
        for at in [0x20_0000, 0x20_1000, 0x40_0000] {
            claims.push(&fault(FaultKind::Minor, at, 1), &Arc::default());
        }
        let mut huge = fault(FaultKind::Minor, 0x20_0000, 2);
        huge.range.end = 0x40_0000;
        claims.push(&huge, &Arc::default());
        assert_eq!(starts(&claims), [(0x20_0000, 2, true), (0x40_0000, 1, true)]);
        // Two pages of it were freed, and filled again: each of its sample stands for 64.
        claims.push(&fault(FaultKind::Minor, 0x20_0000, 3), &Arc::default());
        claims.push(&fault(FaultKind::Minor, 0x20_9000, 3), &Arc::default());
        assert_eq!(claims.pages().count(), 4);
        let refilled = |claims: &Claims| claims.pages().map(|c| claims.refilled(c)).sum::<f64>();
        assert_eq!(refilled(&claims), 0.25);
        claims.push(&fault(FaultKind::Swapped, 0x20_0000, 0), &Arc::default());
        assert_eq!(refilled(&claims), 0.125);
        claims.push(&huge, &Arc::default());
        assert_eq!(starts(&claims), [(0x20_0000, 2, true), (0x40_0000, 1, true)]);
        let mut all = fault(FaultKind::Freed, 0, 0);
        all.range.end = u64::MAX;
        claims.push(&all, &Arc::default());
        assert_eq!(starts(&claims), []);
    }
}
