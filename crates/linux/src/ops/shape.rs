//! Which ranges to clear without splitting a huge page or a large folio.
//!
//! `MADV_COLD` splits a huge page or a large folio if the range covers only a part of it, or if only a part of
//! it is mapped. So each range contains whole folios only. Before Linux 6.10 it always splits large folios in page
//! tables: the walker then reports no such folio, and its young pages are partial.

use isotherm_core::{AddrRange, PAGE_SIZE, PageMask, align_down};

use crate::x86::{Folio, HUGE_SIZE, Level};

/// The ranges to clear in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClearPlan {
    /// Ranges to clear as they are: base pages, or the whole huge page.
    pub ranges: Vec<AddrRange>,
    /// Large folios: to be cleared only if they are mapped completely.
    pub folios: Vec<AddrRange>,
    /// Young pages that cannot be cleared without splitting a folio.
    pub partial: PageMask,
    /// Young pages that are too new to be on an LRU list: the kernel would skip them.
    pub new: PageMask,
}

/// The state of a window, as input of [`plan`].
#[derive(Debug, Clone, Copy)]
pub struct WindowPages<'a> {
    /// address range of the window
    pub window: AddrRange,
    /// the area that contains it
    pub area: AddrRange,
    /// level at which the page table walk ended
    pub level: Level,
    /// pages that are mapped
    pub mapped: &'a PageMask,
    /// pages to be cleared
    pub young: &'a PageMask,
}

/// The plan for a window; `folio` returns the folio of a mapped page.
///
/// A range costs 10 to 25 us independent of its length, and each page in it about 50 ns. So one range extends
/// from the first young page to the last, across old and absent pages, unless a large folio lies between them.
pub fn plan(pages: &WindowPages<'_>, folio: impl Fn(usize) -> Option<Folio>) -> ClearPlan {
    let mut plan = ClearPlan::default();
    let mut pages_of_young = pages.young.iter();
    let Some(first) = pages_of_young.next() else { return plan };
    let last = pages_of_young.last().unwrap_or(first);
    match pages.level {
        Level::Pmd => plan.ranges.push(huge_page(pages.window.start)),
        Level::Pte => {
            let mut open = false;
            for page in first..=last {
                open = plan.add(pages, page, &folio, open);
            }
        }
        Level::None | Level::Pud | Level::Changed => {}
    }
    plan
}

impl ClearPlan {
    /// Adds one page. `open` is whether the last range may be extended to this page; the result is whether it
    /// may be extended beyond it.
    fn add(
        &mut self,
        pages: &WindowPages<'_>,
        page: usize,
        folio: impl Fn(usize) -> Option<Folio>,
        open: bool,
    ) -> bool {
        let at = pages.window.start + page as u64 * PAGE_SIZE;
        let young = pages.young.contains(page);
        if !pages.mapped.contains(page) {
            return open;
        }
        match folio(page) {
            Some(Folio { on_lru: false, .. }) if young => {
                self.new.insert(page);
                open
            }
            Some(Folio { order: 0, .. }) => {
                if young {
                    self.push_page(at, open);
                }
                open || young
            }
            Some(large) if young => {
                match whole(at, large, pages.area) {
                    Some(range) if self.folios.last() == Some(&range) => {}
                    Some(range) => self.folios.push(range),
                    None => self.partial.insert(page),
                }
                false
            }
            None if young => {
                self.partial.insert(page);
                false
            }
            _ => false,
        }
    }

    fn push_page(&mut self, at: u64, open: bool) {
        match self.ranges.last_mut() {
            Some(last) if open => last.end = at + PAGE_SIZE,
            _ => self.ranges.push(AddrRange::new(at, at + PAGE_SIZE)),
        }
    }
}

/// The huge page that contains `addr`.
pub fn huge_page(addr: u64) -> AddrRange {
    let start = align_down(addr, HUGE_SIZE);
    AddrRange::new(start, start + HUGE_SIZE)
}

/// The range of the whole folio of the page at `at`; `None` if it cannot be mapped completely: it would leave
/// the mapping, or lie in two page tables.
pub fn whole(at: u64, folio: Folio, mapping: AddrRange) -> Option<AddrRange> {
    let start = at.checked_sub(u64::from(folio.index) * PAGE_SIZE)?;
    let range = AddrRange::new(start, start.checked_add(PAGE_SIZE << folio.order)?);
    let fits = range.intersect(&mapping) == Some(range);
    (fits && start / HUGE_SIZE == (range.end - 1) / HUGE_SIZE).then_some(range)
}

/// Whether these page frames, in the order of their addresses, are exactly one naturally aligned folio.
pub fn is_whole(frames: impl ExactSizeIterator<Item = Option<u64>>) -> bool {
    let pages = frames.len() as u64;
    let mut first = None;
    frames.enumerate().all(|(i, frame)| {
        let Some(frame) = frame else { return false };
        let first = *first.get_or_insert(frame);
        first % pages.max(1) == 0 && frame == first + i as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const AREA: AddrRange = AddrRange { start: MIB, end: 64 * MIB };

    fn window(start: u64, pages: u64) -> AddrRange {
        AddrRange::new(start, start + pages * PAGE_SIZE)
    }

    /// The plan for a window of which these pages are young, and all but `absent` mapped.
    fn plan_of(
        window: AddrRange,
        young: &[usize],
        absent: &[usize],
        folio: impl Fn(usize) -> Option<Folio>,
    ) -> ClearPlan {
        let mapped = PageMask::of(512, |i| !absent.contains(&i));
        let young = PageMask::of(512, |i| young.contains(&i));
        let level = Level::Pte;
        plan(&WindowPages { window, area: AREA, level, mapped: &mapped, young: &young }, folio)
    }

    fn order0(_: usize) -> Option<Folio> {
        Some(Folio { order: 0, index: 0, on_lru: true, mapped: 1 })
    }

    #[test]
    fn one_range_from_the_first_young_page_to_the_last() {
        let plan = plan_of(window(2 * MIB, 16), &[1, 2, 9], &[5], order0);
        assert_eq!(plan.ranges, [window(2 * MIB + PAGE_SIZE, 9)]);
        assert!(plan.folios.is_empty() && plan.partial.is_empty());
    }

    #[test]
    fn nothing_young_is_nothing_to_do() {
        assert_eq!(plan_of(window(2 * MIB, 16), &[], &[], order0), ClearPlan::default());
    }

    #[test]
    fn no_range_goes_over_a_large_folio() {
        // Pages 4..8 are a folio, old; 1 and 9 are young.
        let folio = |i| match i {
            4..8 => Some(Folio { order: 2, index: i as u32 - 4, on_lru: true, mapped: 1 }),
            _ => order0(i),
        };
        let plan = plan_of(window(2 * MIB, 16), &[1, 9], &[], folio);
        let at = |page| window(2 * MIB + page * PAGE_SIZE, 1);
        assert_eq!(plan.ranges, [at(1), at(9)]);
        assert!(plan.folios.is_empty(), "it is not young");
        // Nor over a page without information.
        let folio = |i| if i == 5 { None } else { order0(i) };
        let plan = plan_of(window(2 * MIB, 16), &[1, 9], &[], folio);
        assert_eq!(plan.ranges, [at(1), at(9)]);
    }

    #[test]
    fn new_pages_are_skipped() {
        let folio = |i| Some(Folio { order: 0, index: 0, on_lru: i != 2, mapped: 1 });
        let plan = plan_of(window(2 * MIB, 16), &[1, 2, 3], &[], folio);
        assert_eq!(plan.ranges, [window(2 * MIB + PAGE_SIZE, 3)]);
        assert_eq!(plan.new.iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_huge_page_is_cleared_whole() {
        let all = PageMask::of(16, |_| true);
        let (window, level) = (window(5 * MIB, 16), Level::Pmd);
        let plan =
            plan(&WindowPages { window, area: AREA, level, mapped: &all, young: &all }, |_| None);
        assert_eq!(plan.ranges, [AddrRange::new(4 * MIB, 6 * MIB)]);
    }

    #[test]
    fn a_large_folio_is_asked_for_once_and_whole() {
        // Pages 0..16 are the upper half of a folio of 32 pages, two of them young.
        let folio = |i| Some(Folio { order: 5, index: 16 + i as u32, on_lru: true, mapped: 1 });
        let plan = plan_of(window(2 * MIB + 16 * PAGE_SIZE, 16), &[3, 4], &[], folio);
        assert_eq!(plan.folios, [window(2 * MIB, 32)]);
        assert!(plan.ranges.is_empty() && plan.partial.is_empty());
    }

    #[test]
    fn folios_that_would_split_are_skipped() {
        // Outside of the area, in two tables, without information.
        let cases: [(u64, Option<Folio>); 3] = [
            (MIB, Some(Folio { order: 4, index: 1, on_lru: true, mapped: 1 })),
            (4 * MIB - PAGE_SIZE, Some(Folio { order: 4, index: 0, on_lru: true, mapped: 1 })),
            (4 * MIB, None),
        ];
        for (start, folio) in cases {
            let plan = plan_of(window(start, 1), &[0], &[], |_| folio);
            assert_eq!(plan.partial.count(), 1, "{start:#x}");
            assert!(plan.ranges.is_empty() && plan.folios.is_empty());
        }
    }

    #[test]
    fn whole_folios() {
        let frames = |f: &[u64]| is_whole(f.iter().copied().map(|f| (f != 0).then_some(f)));
        assert!(frames(&[16, 17, 18, 19]));
        assert!(!frames(&[16, 17, 0, 19]), "one page swapped out");
        assert!(!frames(&[17, 18, 19, 20]), "the end of one folio and the begin of another");
        assert!(!frames(&[16, 18, 17, 19]));
    }
}
