//! Which ranges to clear: as long as possible.

use std::ops::Range;

use isotherm_core::{AddrRange, PAGE_SIZE, PageMask};

/// Gaps up to this many bytes are cleared too, if they contain no young page. A range costs about 10 us regardless
/// of its length, and each page in it about 48 ns (bench `looks`).
pub(super) const BRIDGED_BYTES: u64 = 1 << 20;
/// The longest range, in bytes. Clearing it takes half a millisecond, which is also the largest error of the
/// time stamps of its pages.
const MAX_RUN_BYTES: u64 = 16 << 20;

/// Joins wanted pages to ranges. Blocks must come in ascending order.
#[derive(Debug, Default)]
pub(super) struct Runs {
    ranges: Vec<AddrRange>,
    /// the area that contains the last range
    area: AddrRange,
    /// end of the last page that no range may cover
    kept: u64,
}

impl Runs {
    /// Adds the `wanted` pages of the block at `start`. Ranges stay within `area` and cover no page of `kept`.
    pub fn add(&mut self, start: u64, area: AddrRange, wanted: &PageMask, kept: &PageMask) {
        for pages in stretches(wanted) {
            let range = AddrRange::new(at(start, pages.start), at(start, pages.end));
            let is_open = |last: &AddrRange| {
                let from = page(start, last.end);
                area == self.area
                    && range.start.saturating_sub(last.end) <= BRIDGED_BYTES
                    && range.end - last.start <= MAX_RUN_BYTES
                    && self.kept <= last.end
                    && kept.count_in(from, pages.start) == 0
            };
            match self.ranges.last_mut() {
                Some(last) if is_open(last) => last.end = range.end,
                _ => self.ranges.push(range),
            }
            self.area = area;
        }
        if let Some(last) = stretches(kept).last() {
            self.kept = at(start, last.end);
        }
    }

    /// The ranges, in ascending order.
    pub fn ranges(self) -> Vec<AddrRange> {
        self.ranges
    }
}

fn at(start: u64, page: usize) -> u64 {
    start + page as u64 * PAGE_SIZE
}

/// The index of the page at `addr` in the block at `start`; 0 if `addr` lies before the block.
fn page(start: u64, addr: u64) -> usize {
    usize::try_from(addr.saturating_sub(start) / PAGE_SIZE).unwrap_or(usize::MAX)
}

/// The maximal stretches of adjacent pages of `mask`, in ascending order.
fn stretches(mask: &PageMask) -> impl Iterator<Item = Range<usize>> {
    let words = *mask.words();
    let mut from = 0;
    std::iter::from_fn(move || {
        let first = next(&words, from, 0)?;
        let end = next(&words, first, u64::MAX).unwrap_or(words.len() * 64);
        from = end;
        Some(first..end)
    })
}

/// The first page of the mask from `from` on; if `flip` is all ones, the first page outside of the mask.
fn next(words: &[u64], from: usize, flip: u64) -> Option<usize> {
    let word = |i: usize| words.get(i).map(|w| w ^ flip);
    let begun = word(from / 64)? & u64::MAX << (from % 64);
    if begun != 0 {
        return Some(from / 64 * 64 + begun.trailing_zeros() as usize);
    }
    let i = (from / 64 + 1..words.len()).find(|&i| word(i).is_some_and(|w| w != 0))?;
    Some(i * 64 + word(i)?.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = isotherm_core::BLOCK_SIZE;
    const AREA: AddrRange = AddrRange { start: 0, end: 100 * BLOCK };

    fn mask(pages: &[usize]) -> PageMask {
        PageMask::of(512, |i| pages.contains(&i))
    }

    fn ranges(blocks: &[(u64, PageMask, PageMask)]) -> Vec<AddrRange> {
        let mut runs = Runs::default();
        blocks.iter().for_each(|(start, wanted, kept)| runs.add(*start, AREA, wanted, kept));
        runs.ranges()
    }

    fn pages(first: u64, end: u64) -> AddrRange {
        AddrRange::new(first * PAGE_SIZE, end * PAGE_SIZE)
    }

    #[test]
    fn short_gaps_are_bridged_across_blocks() {
        let none = PageMask::default();
        assert_eq!(ranges(&[(0, mask(&[3, 9, 267]), none)]), [pages(3, 10), pages(267, 268)]);
        let blocks = [(0, mask(&[500]), none), (BLOCK, mask(&[0, 200]), none)];
        assert_eq!(ranges(&blocks), [pages(500, 713)]);
        let blocks = [(0, mask(&[0]), none), (BLOCK, mask(&[0]), none)];
        assert_eq!(ranges(&blocks).len(), 2, "too far");
    }

    #[test]
    fn no_range_covers_kept_memory() {
        let kept = mask(&[5]);
        let in_block = [(0, mask(&[3, 9]), kept)];
        assert_eq!(ranges(&in_block), [pages(3, 4), pages(9, 10)]);
        let behind = [(0, mask(&[500]), mask(&[505])), (BLOCK, mask(&[0]), PageMask::default())];
        assert_eq!(ranges(&behind).len(), 2);
        let before = [(0, mask(&[500]), PageMask::default()), (BLOCK, mask(&[9]), mask(&[8]))];
        assert_eq!(ranges(&before).len(), 2);
    }

    #[test]
    fn ranges_end_with_their_area_and_are_not_too_long() {
        let all = PageMask::span(0, 512);
        let none = PageMask::default();
        let mut runs = Runs::default();
        runs.add(0, AddrRange::new(0, BLOCK), &all, &none);
        runs.add(BLOCK, AddrRange::new(BLOCK, 2 * BLOCK), &all, &none);
        assert_eq!(runs.ranges().len(), 2);
        let blocks: Vec<_> = (0..32).map(|i| (i * BLOCK, all, none)).collect();
        assert!(ranges(&blocks).iter().all(|r| r.len() == MAX_RUN_BYTES));
        assert_eq!(ranges(&blocks).len(), 4);
    }

    proptest! {
        /// Every wanted page is covered, nothing that is kept, and no gap that is too long.
        #[test]
        fn all_that_is_wanted_and_nothing_kept(
            words in prop::collection::vec(any::<[u64; 3]>(), 1..4),
            holes in prop::collection::vec(0u64..3, 1..4),
        ) {
            let mut start = 0;
            let mut blocks = Vec::new();
            for (w, hole) in words.iter().zip(&holes) {
                start += BLOCK * (1 + hole);
                // Long stretches of both kinds.
                let wanted = PageMask::from_words([w[0], 0, w[0] & w[1], u64::MAX, 0, 0, w[1], w[2]]);
                let kept = PageMask::from_words([w[2], w[2] & w[1], 0, 0, 0, 0, w[2], 0]);
                blocks.push((start, wanted.without(&kept), kept));
            }
            let found = ranges(&blocks);
            prop_assert!(found.is_sorted_by(|a, b| a.end <= b.start));
            let covers = |addr| found.iter().any(|r| r.contains(addr));
            for (start, wanted, kept) in &blocks {
                prop_assert!(wanted.iter().all(|p| covers(at(*start, p))));
                prop_assert!(!kept.iter().any(|p| covers(at(*start, p))));
            }
            let wanted = |addr: u64| blocks.iter().any(|(s, w, _)| {
                addr >= *s && addr < *s + BLOCK && w.contains(page(*s, addr))
            });
            for r in &found {
                prop_assert!(wanted(r.start) && wanted(r.end - 1));
            }
        }
    }
}
