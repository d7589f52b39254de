//! Which ranges to clear, so that no huge page and no large folio is split by it.
//!
//! `MADV_COLD` splits a huge page or a large folio that it is not given whole, and one that is not
//! mapped whole. So each range holds whole folios only.

use isotherm_core::{AddrRange, PAGE_SIZE};

use super::mask::PageMask;
use crate::x86::{Folio, HUGE_SIZE, Level};

/// What to clear in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Ranges to clear as they are: base pages, neighbours joined, or the whole huge page.
    pub ranges: Vec<AddrRange>,
    /// Large folios, to be cleared whole if they are mapped whole.
    pub folios: Vec<AddrRange>,
    /// Pages that cannot be cleared without splitting a folio.
    pub partial: PageMask,
}

/// The plan for the `young` pages of `window`, which lies in `mapping`.
pub fn plan(
    window: AddrRange,
    mapping: AddrRange,
    level: Level,
    young: &PageMask,
    folio: impl Fn(usize) -> Option<Folio>,
) -> Plan {
    let mut plan = Plan::default();
    match level {
        _ if young.is_empty() => {}
        Level::Pmd => plan.ranges.push(huge_page(window.start)),
        Level::Pte => {
            for page in young.iter() {
                let at = window.start + page as u64 * PAGE_SIZE;
                match folio(page).map(|f| (f.order, whole(at, f, mapping))) {
                    Some((0, _)) => push_page(&mut plan.ranges, at),
                    Some((_, Some(range))) if plan.folios.last() != Some(&range) => {
                        plan.folios.push(range);
                    }
                    Some((_, Some(_))) => {}
                    Some((_, None)) | None => plan.partial.insert(page),
                }
            }
        }
        Level::None | Level::Pud | Level::Changed => {}
    }
    plan
}

/// The huge page that holds `addr`.
pub fn huge_page(addr: u64) -> AddrRange {
    let start = addr / HUGE_SIZE * HUGE_SIZE;
    AddrRange::new(start, start + HUGE_SIZE)
}

/// Where the folio of the page at `at` would be mapped whole; `None` if that is impossible: outside
/// the mapping, or in two page tables.
fn whole(at: u64, folio: Folio, mapping: AddrRange) -> Option<AddrRange> {
    let start = at.checked_sub(u64::from(folio.index) * PAGE_SIZE)?;
    let range = AddrRange::new(start, start.checked_add(PAGE_SIZE << folio.order)?);
    let fits = range.intersect(&mapping) == Some(range);
    (fits && start / HUGE_SIZE == (range.end - 1) / HUGE_SIZE).then_some(range)
}

fn push_page(ranges: &mut Vec<AddrRange>, at: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == at => last.end += PAGE_SIZE,
        _ => ranges.push(AddrRange::new(at, at + PAGE_SIZE)),
    }
}

/// Whether these page frames, in the order of their addresses, are one whole naturally aligned
/// folio.
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
    const MAPPING: AddrRange = AddrRange { start: MIB, end: 64 * MIB };

    fn window(start: u64, pages: u64) -> AddrRange {
        AddrRange::new(start, start + pages * PAGE_SIZE)
    }

    fn order0(_: usize) -> Option<Folio> {
        Some(Folio { order: 0, index: 0 })
    }

    #[test]
    fn neighbouring_base_pages_are_joined() {
        let young = PageMask::of(16, |i| [1, 2, 5].contains(&i));
        let plan = plan(window(2 * MIB, 16), MAPPING, Level::Pte, &young, order0);
        let at = |page| 2 * MIB + page * PAGE_SIZE;
        assert_eq!(plan.ranges, [AddrRange::new(at(1), at(3)), AddrRange::new(at(5), at(6))]);
        assert!(plan.folios.is_empty() && plan.partial.is_empty());
    }

    #[test]
    fn a_huge_page_is_cleared_whole() {
        let plan = plan(
            window(5 * MIB, 16),
            MAPPING,
            Level::Pmd,
            &PageMask::of(16, |_| true),
            |_| None,
        );
        assert_eq!(plan.ranges, [AddrRange::new(4 * MIB, 6 * MIB)]);
    }

    #[test]
    fn a_large_folio_is_asked_for_once_and_whole() {
        // Pages 0..16 are the upper half of a folio of 32 pages, one of them young.
        let young = PageMask::of(16, |i| i == 3 || i == 4);
        let folio = |i| Some(Folio { order: 5, index: 16 + i as u32 });
        let start = 2 * MIB + 16 * PAGE_SIZE;
        let plan = plan(window(start, 16), MAPPING, Level::Pte, &young, folio);
        assert_eq!(plan.folios, [window(2 * MIB, 32)]);
        assert!(plan.ranges.is_empty() && plan.partial.is_empty());
    }

    #[test]
    fn what_would_split_is_left() {
        let young = PageMask::of(16, |i| i == 0);
        // Outside of the mapping, in two tables, not told.
        let cases: [(u64, Option<Folio>); 3] = [
            (MIB, Some(Folio { order: 4, index: 1 })),
            (4 * MIB - PAGE_SIZE, Some(Folio { order: 4, index: 0 })),
            (4 * MIB, None),
        ];
        for (start, folio) in cases {
            let plan = plan(window(start, 1), MAPPING, Level::Pte, &young, |_| folio);
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
