//! What really happened.

use std::time::Duration;

use isotherm_core::{AddrRange, Nanos, PAGE_SIZE};

use crate::access::{Access, pages};
use crate::space::AddressSpace;

/// The truth about what is mapped in an address space now: exact, for any page and time.
///
/// It is about accesses by the target, whether they can be seen or not.
#[derive(Debug, Clone, Copy)]
pub struct Truth<'a> {
    space: &'a AddressSpace,
}

impl<'a> Truth<'a> {
    pub(crate) fn new(space: &'a AddressSpace) -> Self {
        Truth { space }
    }

    /// When the page that holds `addr` was last touched up to and including `at`.
    #[must_use]
    pub fn last_touch(&self, addr: u64, at: Nanos) -> Option<Nanos> {
        let page = addr - addr % PAGE_SIZE;
        self.accesses(page).filter_map(|a| a.last_touch(page, Nanos(0), at)).max()
    }

    /// Touches a second of the page that holds `addr`, as expected of its patterns, between `from`
    /// and `to`.
    #[must_use]
    pub fn rate_hz(&self, addr: u64, from: Nanos, to: Nanos) -> f64 {
        let page = addr - addr % PAGE_SIZE;
        let touches: f64 = self.accesses(page).map(|a| a.expected(page, from, to)).sum();
        touches / to.since(from).as_secs_f64()
    }

    /// Mapped bytes in `range` touched at `hz` or more between `from` and `to`.
    #[must_use]
    pub fn hot_bytes(&self, range: AddrRange, from: Nanos, to: Nanos, hz: f64) -> u64 {
        let hot = |page| self.rate_hz(page, from, to) >= hz;
        self.pieces(range).map(|p| count(p, self.accesses(p.start).all(Access::is_even), hot)).sum()
    }

    /// Mapped bytes in `range` that, at the time `at`, had not been touched (or existed) for `age`.
    #[must_use]
    pub fn cold_bytes(&self, range: AddrRange, at: Nanos, age: Duration) -> u64 {
        let since = |page| self.last_touch(page, at).or(self.mapped_at(page));
        let cold = |page| since(page).is_some_and(|t| at.since(t) >= age);
        self.pieces(range).map(|p| count(p, self.accesses(p.start).next().is_none(), cold)).sum()
    }

    fn accesses(&self, page: u64) -> impl Iterator<Item = &'a Access> {
        self.space.accesses.iter().filter(move |a| a.range.contains(page))
    }

    fn mapped_at(&self, addr: u64) -> Option<Nanos> {
        self.space.areas.iter().find(|a| a.range.contains(addr)).map(|a| a.mapped_at)
    }

    /// What is mapped of `range`, cut wherever a mapping or a pattern begins or ends.
    fn pieces(&self, range: AddrRange) -> impl Iterator<Item = AddrRange> {
        let mapped = self.space.areas.iter().filter_map(move |a| a.range.intersect(&range));
        mapped.flat_map(|part| {
            let ends = self.space.accesses.iter().flat_map(|a| [a.range.start, a.range.end]);
            let mut cuts: Vec<u64> = ends.filter(|&c| part.contains(c)).collect();
            cuts.extend([part.start, part.end]);
            cuts.sort_unstable();
            cuts.dedup();
            cuts.windows(2).map(|w| AddrRange::new(w[0], w[1])).collect::<Vec<_>>()
        })
    }
}

/// Bytes of `piece` of whose pages `holds` is true. If they are all `alike`, one speaks for all.
fn count(piece: AddrRange, alike: bool, holds: impl Fn(u64) -> bool) -> u64 {
    if !alike {
        return pages(&piece).filter(|&p| holds(p)).count() as u64 * PAGE_SIZE;
    }
    if holds(piece.start) { piece.len() } else { 0 }
}
