//! When pages were last touched, according to all accessed bits that were read before they were cleared.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{AddrRange, BLOCK_SIZE, Nanos, PAGE_SIZE, PageMask, align_down};

const PAGES: usize = (BLOCK_SIZE / PAGE_SIZE) as usize;
/// Largest stamp. Stamps are seconds, counted from 1. When they run out, all stamps older than half of this
/// range become equally old.
const LAST: u64 = u16::MAX as u64;

/// For each page of a block, the second in which it was last cleared while young; 0: never.
type Stamps = Box<[u16; PAGES]>;

/// The last touches of pages. It needs two bytes for each page of a block in which any page was young and
/// cleared, and one bit for each page of a block in which any page is young: at most 544 KiB for 1 GiB.
#[derive(Debug)]
pub(crate) struct TouchHistory {
    /// the time from which stamps are counted
    zero: Nanos,
    /// the time since when clears are recorded
    since: Nanos,
    blocks: HashMap<u64, Stamps>,
    /// pages that were young at their last reading, and that isotherm has not cleared since
    young: HashMap<u64, PageMask>,
}

impl TouchHistory {
    /// Without knowledge of the time before `now`.
    pub fn since(now: Nanos) -> Self {
        TouchHistory { zero: now, since: now, blocks: HashMap::new(), young: HashMap::new() }
    }

    /// Records that the `young` pages of the block at `start` were young until `now`, and are cleared.
    pub fn note(&mut self, start: u64, young: &PageMask, now: Nanos) {
        if young.is_empty() {
            return;
        }
        // Rounded up, so that no page counts as older than it is.
        let stamp = self.second(now) + 1;
        let stamps = self.blocks.entry(start).or_insert_with(|| Box::new([0; PAGES]));
        young.iter().for_each(|page| stamps[page] = stamp);
        if let Some(known) = self.young.get_mut(&start) {
            *known = known.without(young);
        }
    }

    /// Records a reading of the `resident` pages of the block at `start`. A page that was young and is not
    /// young any more was cleared by another program or the kernel (reclaim, DAMON): it counts as touched until
    /// now.
    pub fn read(&mut self, start: u64, resident: &PageMask, young: &PageMask, now: Nanos) {
        let before = self.young.get(&start).copied().unwrap_or_default();
        self.note(start, &before.and(resident).without(young), now);
        let known = before.without(resident).or(young);
        if known.is_empty() {
            self.young.remove(&start);
        } else {
            self.young.insert(start, known);
        }
    }

    /// Whether any page of `range`, which lies in one block, was touched within `time` before `now`, or may
    /// have been. A page that was young at its last reading counts as still young.
    pub fn within(&self, range: AddrRange, time: Duration, now: Nanos) -> bool {
        if now.since(self.since) < time {
            return true;
        }
        let start = align_down(range.start, BLOCK_SIZE);
        let page = |addr: u64| ((addr - start) / PAGE_SIZE) as usize;
        // If another program has cleared it since the last reading, isotherm has not recorded that.
        let was_young = |young: &PageMask| young.count_in(page(range.start), page(range.end)) > 0;
        if self.young.get(&start).is_some_and(was_young) {
            return true;
        }
        let stamps = self.blocks.get(&start).map(|stamps| &stamps[..]).unwrap_or_default();
        let of_range = stamps.get(page(range.start)..page(range.end).min(PAGES));
        let last = of_range.unwrap_or_default().iter().max().copied().unwrap_or(0);
        last > 0 && now.since(self.zero + Duration::from_secs(last.into())) < time
    }

    /// Forgets blocks without any mapped memory.
    pub fn keep(&mut self, is_mapped: impl Fn(AddrRange) -> bool) {
        let is_mapped = |start: u64| is_mapped(AddrRange::new(start, start + BLOCK_SIZE));
        self.blocks.retain(|start, _| is_mapped(*start));
        self.young.retain(|start, _| is_mapped(*start));
    }

    /// The second of `now`, below [`LAST`].
    fn second(&mut self, now: Nanos) -> u16 {
        let second = now.since(self.zero).as_secs();
        if second < LAST {
            return second as u16;
        }
        // The stamps are moved to a later origin. Touches before that origin become equally old.
        let shift = second - LAST / 2;
        self.zero = self.zero + Duration::from_secs(shift);
        let less = u16::try_from(shift).unwrap_or(u16::MAX);
        for stamp in self.blocks.values_mut().flat_map(|stamps| stamps.iter_mut()) {
            *stamp = stamp.saturating_sub(less);
        }
        (second - shift) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    fn pages(first: u64, end: u64) -> AddrRange {
        let start = 7 * BLOCK_SIZE;
        AddrRange::new(start + first * PAGE_SIZE, start + end * PAGE_SIZE)
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
    fn what_others_clear_was_touched_until_then() {
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
        assert!(touched.young.is_empty());
        touched.read(start, &all, &PageMask::span(15, 20), at(130));
        touched.read(start, &PageMask::span(0, 18), &PageMask::default(), at(140));
        let within = |page, now| touched.within(pages(page, page + 1), FIVE, at(now));
        assert_eq!([144, 146].map(|now| within(17, now)), [true, false]);
        assert!(within(18, 146), "it is gone, and was young when it was last seen");
    }

    #[test]
    fn seconds_never_run_out() {
        let mut touched = TouchHistory::since(at(0));
        let block = 7 * BLOCK_SIZE;
        for (page, second) in [(1, 1000), (2, 65_530), (3, 65_540), (4, 400_000)] {
            touched.note(block, &PageMask::span(page, page + 1), at(second));
            let page = page as u64;
            let within = |s| touched.within(pages(page, page + 1), FIVE, at(second + s));
            assert!(within(4) && !within(6), "page {page}");
        }
        assert!(!touched.within(pages(1, 4), FIVE, at(400_001)));
    }

    #[test]
    fn what_is_unmapped_is_forgotten() {
        let mut touched = TouchHistory::since(at(0));
        touched.note(7 * BLOCK_SIZE, &PageMask::span(0, 1), at(10));
        touched.keep(|range| range.start == 7 * BLOCK_SIZE);
        assert!(touched.within(pages(0, 1), FIVE, at(11)));
        touched.keep(|_| false);
        assert!(!touched.within(pages(0, 1), FIVE, at(11)));
    }
}
