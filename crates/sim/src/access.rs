//! An active pattern: its range, its start and its end.

use isotherm_core::{AddrRange, Nanos, PAGE_SIZE};

use crate::pattern::{PatternArea, TouchPattern};
use crate::space::outside;

/// A pattern that was set for a range at some time.
#[derive(Debug, Clone)]
pub(crate) struct LaidPattern {
    /// where it acts: a part of `laid_over` after the pattern was ended in the other parts
    pub range: AddrRange,
    laid_over: AddrRange,
    pattern: TouchPattern,
    key: u64,
    from: Nanos,
    /// time of the last possible touch
    until: Nanos,
}

impl LaidPattern {
    pub fn new(range: AddrRange, pattern: TouchPattern, key: u64, from: Nanos) -> Self {
        LaidPattern { range, laid_over: range, pattern, key, from, until: Nanos(u64::MAX) }
    }

    /// The last touch in (`after`, `until`] of the page at `addr`, which must be in the range.
    pub fn last_touch(&self, addr: u64, after: Nanos, until: Nanos) -> Option<Nanos> {
        let until = until.min(self.until).0.checked_sub(self.from.0)?;
        let after = after.0.saturating_sub(self.from.0);
        let (page, frame) = self.place(addr);
        let last = self.pattern.last_touch(page, frame, after, until)?;
        Some(Nanos(self.from.0 + last))
    }

    /// Whether any page of `range` was touched in (`after`, `until`].
    pub fn touched(&self, range: AddrRange, after: Nanos, until: Nanos) -> bool {
        let pages = self.range.intersect(&range).into_iter().flat_map(|r| pages(&r));
        pages.into_iter().any(|addr| self.last_touch(addr, after, until).is_some())
    }

    /// Expected number of touches in (`from`, `to`] of the page at `addr`, which must be in the range.
    pub fn expected(&self, addr: u64, from: Nanos, to: Nanos) -> f64 {
        let since = |t: Nanos| t.clamp(self.from, self.until).0 - self.from.0;
        let (page, frame) = self.place(addr);
        self.pattern.expected(page, frame, since(from), since(to))
    }

    /// Whether all pages have the same expectation.
    pub fn is_even(&self) -> bool {
        self.pattern.is_even()
    }

    fn place(&self, addr: u64) -> (u64, PatternArea) {
        let page = addr.saturating_sub(self.laid_over.start) / PAGE_SIZE;
        (page, PatternArea { pages: self.laid_over.len() / PAGE_SIZE, key: self.key })
    }

    /// The parts outside `hole`, which continue unchanged.
    pub fn without(&self, hole: AddrRange) -> Vec<LaidPattern> {
        let parts = outside(self.range, hole).into_iter().filter(|r| !r.is_empty());
        parts.map(|range| self.part(range)).collect()
    }

    /// The part inside `hole`, which ends at `now` unless it has already ended.
    pub fn ended(&self, hole: AddrRange, now: Nanos) -> Option<LaidPattern> {
        let range = self.range.intersect(&hole)?;
        Some(LaidPattern { until: self.until.min(now), ..self.part(range) })
    }

    fn part(&self, range: AddrRange) -> LaidPattern {
        LaidPattern { range, ..self.clone() }
    }
}

/// The addresses of the pages in `range`.
pub(crate) fn pages(range: &AddrRange) -> impl Iterator<Item = u64> + use<> {
    let start = range.start;
    (0..range.len() / PAGE_SIZE).map(move |i| start + i * PAGE_SIZE)
}
