//! When pages were last touched, according to all accessed bits that were read before they were cleared.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{AddrRange, BLOCK_SIZE, EARLY_DIVISOR, Nanos, PAGE_SIZE, PageMask};

const BLOCK_PAGES: usize = (BLOCK_SIZE / PAGE_SIZE) as usize;
/// Largest stamp. Stamps are seconds, counted from 1. When they run out, all stamps older than half of this
/// range become equally old.
const LAST_STAMP: u64 = u16::MAX as u64;

/// The known touches of the pages of a block.
#[derive(Debug)]
struct BlockStamps {
    /// pages that were young at their last reading, and that isotherm has not cleared since
    young: PageMask,
    /// for a young page the second in which it was found young, else that of its last clear; 0: it was never young
    at: [u16; BLOCK_PAGES],
    /// seconds between these two, before the last clear
    doubt: [u8; BLOCK_PAGES],
}

/// The last touches of pages. It needs three bytes for each page of a block in which any page was young: 800 KiB
/// for 1 GiB.
///
/// A page that was found young at second f, cleared at c, and not found young since was last touched between f and
/// c. Most pages that are idle for a time T were touched at f: pages with this age are touched about once in T, and
/// c is soon after f. But a page that was touched all the time was touched at c. So the last touch counts as at f,
/// but at most a quarter of T before c.
#[derive(Debug)]
pub(crate) struct TouchHistory {
    /// the time from which seconds are counted
    zero: Nanos,
    /// the time since when clears are recorded
    since: Nanos,
    blocks: HashMap<u64, BlockStamps>,
}

impl BlockStamps {
    /// Records that the `young` pages were cleared in this second.
    fn cleared(&mut self, young: &PageMask, second: u16) {
        for page in young.iter() {
            let found = if self.young.contains(page) { self.at[page] } else { second };
            self.doubt[page] = u8::try_from(second.saturating_sub(found)).unwrap_or(u8::MAX);
            self.at[page] = second;
        }
        self.young = self.young.without(young);
    }

    /// Records that the `young` pages, and of the `resident` ones no others, were young in this second.
    fn read(&mut self, resident: &PageMask, young: &PageMask, second: u16) {
        // Others cleared these at an unknown time, so they count as touched until now.
        let lost = self.young.and(resident).without(young);
        self.cleared(&lost, second);
        lost.iter().for_each(|page| self.doubt[page] = 0);
        young.without(&self.young).iter().for_each(|page| self.at[page] = second);
        self.young = self.young.or(young);
    }
}

impl TouchHistory {
    /// Without knowledge of the time before `now`.
    pub fn since(now: Nanos) -> Self {
        TouchHistory { zero: now, since: now, blocks: HashMap::new() }
    }

    /// Records that the `young` pages of the block at `start` were young until `now`, and are cleared.
    pub fn note(&mut self, start: u64, young: &PageMask, now: Nanos) {
        let second = self.second(now);
        if !young.is_empty() {
            self.block(start).cleared(young, second);
        }
    }

    /// Records a reading of the `resident` pages of the block at `start`. A page that was young and is not
    /// young any more was cleared by another program or the kernel (reclaim, DAMON).
    pub fn read(&mut self, start: u64, resident: &PageMask, young: &PageMask, now: Nanos) {
        let second = self.second(now);
        if !young.is_empty() || self.blocks.contains_key(&start) {
            self.block(start).read(resident, young, second);
        }
    }

    /// The pages of the block at `start` that were touched within `time` before `now`, or may have been: see
    /// [`TouchHistory`]. A page that was young at its last reading counts as still young.
    pub fn recent(&self, start: u64, time: Duration, now: Nanos) -> PageMask {
        if now.since(self.since) < time {
            return PageMask::span(0, BLOCK_PAGES);
        }
        let Some(block) = self.blocks.get(&start) else { return PageMask::default() };
        // In ms, because this is computed for each page of each look.
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (now, time) = (ms(now.since(self.zero)), ms(time));
        let early = time / u64::from(EARLY_DIVISOR);
        let touched = |page: usize| {
            let (at, doubt) = (u64::from(block.at[page]), u64::from(block.doubt[page]) * 1000);
            at > 0 && now.saturating_sub((at - 1) * 1000) + doubt.min(early) < time
        };
        // If another program has cleared a young page since the last reading, isotherm has not recorded that.
        block.young.or(&PageMask::of(BLOCK_PAGES, touched))
    }

    /// Forgets blocks without any mapped memory.
    pub fn keep(&mut self, is_mapped: impl Fn(AddrRange) -> bool) {
        self.blocks.retain(|start, _| is_mapped(AddrRange::new(*start, *start + BLOCK_SIZE)));
    }

    fn block(&mut self, start: u64) -> &mut BlockStamps {
        let unknown = || BlockStamps {
            young: PageMask::default(),
            at: [0; BLOCK_PAGES],
            doubt: [0; BLOCK_PAGES],
        };
        self.blocks.entry(start).or_insert_with(unknown)
    }

    /// The second of `now`, rounded, from 1 to [`LAST_STAMP`].
    fn second(&mut self, now: Nanos) -> u16 {
        let second = (now.since(self.zero) + Duration::from_millis(500)).as_secs() + 1;
        if second <= LAST_STAMP {
            return second as u16;
        }
        // The stamps are moved to a later origin. Touches before that origin become equally old.
        let shift = second - LAST_STAMP / 2;
        self.zero = self.zero + Duration::from_secs(shift);
        let less = u16::try_from(shift).unwrap_or(u16::MAX);
        let stamps = self.blocks.values_mut().flat_map(|block| &mut block.at);
        stamps.for_each(|at| *at = at.saturating_sub(less));
        (second - shift) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    const BLOCK: u64 = 7 * BLOCK_SIZE;

    impl TouchHistory {
        /// Whether any of these pages counts as touched.
        fn within(&self, (first, end): (usize, usize), time: Duration, now: Nanos) -> bool {
            self.recent(BLOCK, time, now).count_in(first, end) > 0
        }
    }

    fn pages(first: usize, end: usize) -> (usize, usize) {
        (first, end)
    }

    const FIVE: Duration = Duration::from_secs(5);

    #[test]
    fn nothing_is_known_of_before() {
        let touched = TouchHistory::since(at(100));
        assert!(touched.within(pages(0, 1), FIVE, at(104)));
        assert!(!touched.within(pages(0, 1), FIVE, at(105)));
    }

    #[test]
    fn each_page_has_a_time_of_its_own() {
        let mut touched = TouchHistory::since(at(0));
        touched.note(7 * BLOCK_SIZE, &PageMask::span(10, 20), at(100));
        touched.note(7 * BLOCK_SIZE, &PageMask::span(15, 16), at(103));
        let within = |first, end, now| touched.within(pages(first, end), FIVE, at(now));
        assert!(within(10, 11, 104) && !within(9, 10, 104) && !within(20, 21, 104));
        assert!(within(9, 11, 104), "a part of it was");
        assert!(!within(10, 11, 106) && within(15, 16, 106) && !within(15, 16, 109));
    }

    #[test]
    fn foreign_clears_count_as_touches_before_them() {
        let mut touched = TouchHistory::since(at(0));
        let start = 7 * BLOCK_SIZE;
        let all = PageMask::span(0, 512);
        let mut read = |first, end, now| {
            touched.read(start, &all, &PageMask::span(first, end), at(now));
            let within = |page| touched.within(pages(page, page + 1), FIVE, at(now + 4));
            [10, 15].map(within)
        };
        assert_eq!(read(10, 20, 100), [true, true], "they are young still");
        assert_eq!(read(15, 20, 103), [true, true]);
        assert_eq!(read(15, 20, 110), [false, true], "it was told once");
        touched.note(start, &PageMask::span(15, 20), at(120));
        touched.read(start, &all, &PageMask::default(), at(126));
        assert!(!touched.within(pages(15, 20), FIVE, at(126)), "we have cleared them ourselves");
        touched.read(start, &all, &PageMask::span(15, 20), at(130));
        touched.read(start, &PageMask::span(0, 18), &PageMask::default(), at(140));
        let within = |page, now| touched.within(pages(page, page + 1), FIVE, at(now));
        assert_eq!([144, 146].map(|now| within(17, now)), [true, false]);
        assert!(within(18, 146), "it is gone, and was young when it was last seen");
    }

    /// Found at 100 s and cleared at 104 s: probably touched at 100 s, but maybe at 104 s.
    #[test]
    fn young_pages_count_from_their_discovery_less_a_share() {
        let mut touched = TouchHistory::since(at(0));
        let start = 7 * BLOCK_SIZE;
        let found = PageMask::span(0, 10);
        touched.read(start, &PageMask::span(0, 512), &found, at(100));
        touched.note(start, &found, at(104));
        let within = |time, now| {
            touched.within(pages(0, 10), Duration::from_secs(time), Nanos(now * 100_000_000_u64))
        };
        assert_eq!([within(30, 1299), within(30, 1300)], [true, false]);
        assert_eq!([within(12, 1129), within(12, 1130)], [true, false], "at most 3 s too early");
    }

    #[test]
    fn seconds_never_run_out() {
        let mut touched = TouchHistory::since(at(0));
        let block = 7 * BLOCK_SIZE;
        for (page, second) in [(1, 1000), (2, 65_530), (3, 65_540), (4, 400_000)] {
            touched.note(block, &PageMask::span(page, page + 1), at(second));
            let within = |s| touched.within(pages(page, page + 1), FIVE, at(second + s));
            assert!(within(4) && !within(6), "page {page}");
        }
        assert!(!touched.within(pages(1, 4), FIVE, at(400_001)));
    }

    #[test]
    fn unmapped_memory_is_forgotten() {
        let mut touched = TouchHistory::since(at(0));
        touched.note(7 * BLOCK_SIZE, &PageMask::span(0, 1), at(10));
        touched.keep(|range| range.start == 7 * BLOCK_SIZE);
        assert!(touched.within(pages(0, 1), FIVE, at(11)));
        touched.keep(|_| false);
        assert!(!touched.within(pages(0, 1), FIVE, at(11)));
    }
}
