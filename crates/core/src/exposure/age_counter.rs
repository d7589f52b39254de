//! Counts idle ages page by page, in a sample of a target's windows.
//!
//! A page that was found touched by a read was touched after the previous read, and maybe until its next clear.
//! When it is found touched again, its age lies between the time since that clear and the time since that read.
//! Regions do not show such ages: where one page of a region is hot, the ages of the others are lost.
//!
//! In a large target, which is observed by samples, some blocks are observed as a whole for this.

use std::collections::HashMap;

use super::coarse::is_large;
use crate::ages::{AgeHistogram, HugeAges, KeptAges, KeptBlock, PageAges, is_row_due};
use crate::fault::sample_level;
use crate::page_mask::PageMask;
use crate::range::{AddrRange, PAGE_SIZE};
use crate::survey::{BLOCK_SIZE, pages_in_block};
use crate::time::Nanos;

/// Pages of a window, and windows of a block. Windows have 64 KiB, regardless of the monitor's attributes.
const WINDOW_PAGES: usize = 16;
const BLOCK_WINDOWS: u64 = BLOCK_SIZE / PAGE_SIZE / WINDOW_PAGES as u64;
/// Maximum number of sampled windows of a target: 32,768 pages with 12 bytes each. All targets together have twice
/// as many, which they share by their memory. But each has some.
const MAX_SAMPLED_WINDOWS: u64 = 2048;
const MAX_WINDOWS_OF_ALL: u64 = 4096;
const MIN_WINDOWS: u64 = 8;

/// Minimum number of blocks of a large target that are observed as a whole; there are less than twice as many. Heat
/// often stays the same over a block, so many blocks, with few windows each, describe the target better than few.
const WHOLE_BLOCKS: usize = 128;
/// The sample grows again if it could have 2^`MIN_GAIN` times as many windows for `GAIN_FOR_MS`. Counting then begins anew,
/// so the gain must be large.
const MIN_GAIN: u32 = 2;
const GAIN_FOR_MS: u32 = 3_600_000;

/// The windows that are sampled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sampling {
    /// One in 2^shift windows is sampled ...
    shift: u32,
    /// ... all of them in one of 2^blocks blocks; 0 in targets that are not large.
    blocks: u32,
}

impl Sampling {
    /// Whether the block at `start` has sampled windows. Larger numbers select subsets of smaller ones.
    pub fn has_block(self, start: u64) -> bool {
        is_among(start / BLOCK_SIZE, self.blocks)
    }

    /// The pages of the windows of `pages` that are sampled.
    fn pages(self, start: u64, pages: &PageMask) -> PageMask {
        if !self.has_block(start) {
            return PageMask::default();
        }
        let window = start / BLOCK_SIZE * BLOCK_WINDOWS;
        let mut words = *pages.words();
        for (word, i) in words.iter_mut().zip(0_u64..) {
            let mut whole = 0;
            // A word has four windows of 16 pages.
            for k in 0..4 {
                let pages = 0xFFFF << (16 * k);
                if *word & pages != 0 && is_among(window + 4 * i + k, self.shift - self.blocks) {
                    whole |= pages;
                }
            }
            *word = whole;
        }
        PageMask::from_words(words)
    }
}

/// Whether `n` is among one in 2^shift numbers, which its hash selects.
fn is_among(n: u64, shift: u32) -> bool {
    sample_level(n) >= shift
}

/// The known times of one page, in ms, at least 1.
#[derive(Debug, Clone, Copy, Default)]
struct Stamp {
    /// when the page was touched first after a clear, to half of the time between two reads; 0: never
    found: u32,
    /// its clear after that; 0: it was not cleared yet
    cleared: u32,
    /// Mean time between two touches; 0: it was touched only once.
    between: u32,
}

#[derive(Debug, Default)]
struct BlockStamps {
    /// sampled pages, in the order of `stamps`
    pages: PageMask,
    stamps: Box<[Stamp]>,
    /// pages that were touched since they were first cleared
    returned: PageMask,
}

/// The pages of a block at present.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockState {
    pub start: u64,
    pub resident: PageMask,
    pub hidden: PageMask,
    pub huge: bool,
    /// Only a sample of the block is observed: it says nothing of the ages of pages, and others represent it.
    pub is_represented: bool,
    /// For pages that were touched and not cleared since: they are hot, untouched since a time in ms, or
    /// neither is known.
    pub young: YoungAge,
}

/// The presumed ages of pages that were touched and not cleared since.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum YoungAge {
    /// Nothing: they may be touched all the time.
    #[default]
    Unknown,
    /// They are touched all the time, as a sample shows.
    Hot,
    /// They are untouched since this time in ms, as a sample shows.
    IdleSince(u32),
}

/// The ages of a sample of the pages of one target.
#[derive(Debug, Default)]
pub(super) struct AgeCounter {
    pub sampling: Sampling,
    blocks: HashMap<u64, BlockStamps>,
    returned: AgeHistogram,
    huge_returned: AgeHistogram,
    /// sum of the errors of returned ages, in ms
    errors: u64,
    /// blocks of which a page is no longer resident, since the last call of [`AgeCounter::take_left`]
    left: Vec<u64>,
    /// the last block that this call has returned
    taken: u64,
    begun: Option<(Nanos, u32)>,
    /// time of the last row
    since: (Nanos, u32),
    /// time in ms since which the sample could be much larger; 0: it could not
    small_since: u32,
    /// whether the last row had memory in swap: its ages are known from the past only
    has_swapped: bool,
    /// Until this time in ms an earlier monitor counted; 0: there was none, or it no longer matters.
    resumed: u32,
}

/// The stamps of the block at `start`, with room for the sampled pages among `pages`; `None` if there are none.
fn block<'a>(
    blocks: &'a mut HashMap<u64, BlockStamps>,
    start: u64,
    pages: &PageMask,
    sampling: Sampling,
) -> Option<&'a mut BlockStamps> {
    let wanted = sampling.pages(start, pages);
    if wanted.is_empty() {
        return None;
    }
    let block = blocks.entry(start).or_default();
    if !wanted.without(&block.pages).is_empty() {
        block.grow(&wanted);
    }
    Some(block)
}

impl BlockStamps {
    /// Makes room for `more` pages.
    fn grow(&mut self, more: &PageMask) {
        let (before, all) = (self.pages, self.pages.or(more));
        let mut known = self.stamps.iter().copied();
        let stamp = |page| if before.contains(page) { known.next() } else { None };
        self.stamps = all.iter().map(stamp).map(Option::unwrap_or_default).collect();
        self.pages = all;
    }

    /// Forgets all but `pages`.
    fn keep_only(&mut self, pages: &PageMask) {
        let kept = self.pages.and(pages);
        if kept != self.pages {
            self.stamps = self.of(&kept).map(|(_, stamp)| *stamp).collect();
            self.returned = self.returned.and(&kept);
            self.pages = kept;
        }
    }

    /// The pages that were touched and not cleared since.
    fn touched(&self) -> PageMask {
        let stamps = self.pages.iter().zip(&self.stamps);
        let mut touched = PageMask::default();
        stamps.filter(|(_, s)| s.found > 0 && s.cleared == 0).for_each(|(p, _)| touched.insert(p));
        touched
    }

    /// The sampled pages among `pages`, with their stamps.
    fn of<'a>(&'a mut self, pages: &'a PageMask) -> impl Iterator<Item = (usize, &'a mut Stamp)> {
        self.pages.iter().zip(&mut self.stamps).filter(|(page, _)| pages.contains(*page))
    }
}

impl AgeCounter {
    /// Records that a read found `pages` touched, and the previous read or clear, at `before`, did not.
    pub fn found(&mut self, start: u64, pages: &PageMask, huge: bool, (before, ms): (u32, u32)) {
        self.touched(start, pages, huge, (before, ms), None);
    }

    /// Records that the first read of a block at `ms` found `pages` touched. Of pages that were found touched
    /// before and not cleared since, it shows nothing. The others were touched after an earlier monitor ended, if
    /// there was one: it is not known when and how often, so they do not count as returned.
    pub fn found_first(&mut self, start: u64, pages: &PageMask, huge: bool, ms: u32) {
        let at = self.resumed.midpoint(ms).max(1);
        match self.blocks.get_mut(&start).filter(|_| self.resumed > 0) {
            None => self.found(start, pages, huge, (ms, ms)),
            Some(block) => {
                let mut returned = block.returned;
                let new = pages.without(&block.touched());
                for (page, stamp) in block.of(&new) {
                    if stamp.cleared > 0 {
                        returned.insert(page);
                    }
                    *stamp = Stamp { found: at, cleared: 0, ..*stamp };
                }
                block.returned = returned;
            }
        }
    }

    /// Records that all memory was read since an earlier monitor ended: what a first read of a block finds now was touched
    /// after that.
    pub fn end_gap(&mut self) {
        self.resumed = 0;
    }

    /// The known ages, for the monitor that follows this one.
    pub fn kept(&self, now: Nanos, ms: u32) -> Option<KeptAges> {
        let (begun, _) = self.begun?;
        let ago = |at: u32| if at == 0 { 0 } else { ms.saturating_sub(at).max(1) };
        let stamps = |b: &BlockStamps| {
            b.stamps.iter().map(|s| [ago(s.found), ago(s.cleared), s.between]).collect()
        };
        let block = |(start, b): (&u64, &BlockStamps)| KeptBlock {
            start: *start,
            pages: b.pages,
            returned: b.returned,
            stamps: stamps(b),
        };
        let mut blocks: Vec<KeptBlock> = self.blocks.iter().map(block).collect();
        blocks.sort_unstable_by_key(|b| b.start);
        let Sampling { shift, blocks: whole } = self.sampling;
        Some(KeptAges { at: now, begun, shift, whole, blocks })
    }

    /// Continues at `now` from the ages that an earlier monitor knew at `kept.at`, which is `ms`; its beginning is
    /// `begun_ms`.
    pub fn resume(&mut self, kept: KeptAges, (ms, begun_ms): (u32, u32), now: (Nanos, u32)) {
        let at = |ago: u32| if ago == 0 { 0 } else { ms.saturating_sub(ago).max(1) };
        let stamp = |[found, cleared, between]: [u32; 3]| Stamp {
            found: at(found),
            cleared: at(cleared),
            between,
        };
        let sound = kept.blocks.into_iter().filter(|b| {
            let is_block = b.start % BLOCK_SIZE == 0 && b.start < u64::MAX - BLOCK_SIZE;
            is_block && b.pages.count() as usize == b.stamps.len()
        });
        self.blocks = sound
            .map(|b| {
                let stamps = b.stamps.into_iter().map(stamp).collect();
                (b.start, BlockStamps { pages: b.pages, stamps, returned: b.returned })
            })
            .collect();
        // Some of this memory may have been freed since.
        self.left = self.blocks.keys().copied().collect();
        let shift = kept.shift.min(63);
        self.sampling = Sampling { shift, blocks: kept.whole.min(shift) };
        self.begun = Some((kept.begun, begun_ms));
        // Touches between the two monitors are not counted: at most one of each page could be seen.
        self.since = now;
        self.resumed = ms.max(1);
    }

    /// Records that `pages`, which were presumed untouched since `idle_since` in ms, are touched again.
    pub fn reactivated(
        &mut self,
        start: u64,
        pages: &PageMask,
        huge: bool,
        idle_since: u32,
        ms: u32,
    ) {
        self.touched(start, pages, huge, (ms, ms), Some(idle_since.max(1)));
    }

    fn touched(
        &mut self,
        start: u64,
        pages: &PageMask,
        huge: bool,
        (before, ms): (u32, u32),
        idle: Option<u32>,
    ) {
        let Some(block) = block(&mut self.blocks, start, pages, self.sampling) else { return };
        let mut returned = block.returned;
        let at = before.midpoint(ms).max(1);
        for (page, stamp) in block.of(pages) {
            if let (0, Some(since)) = (stamp.cleared, idle) {
                *stamp = Stamp { found: since, cleared: since, ..*stamp };
            }
            if stamp.cleared > 0 {
                let (low, high) = stamp.bounds(at);
                let age = stamp.likely(at);
                self.returned.add(age, 1);
                self.errors += (high - low) / 2 + u64::from(ms.saturating_sub(before)) / 2;
                if huge {
                    self.huge_returned.add(age, 1);
                }
                returned.insert(page);
                stamp.note_time_between(at);
            }
            *stamp = Stamp { found: at, cleared: 0, ..*stamp };
        }
        block.returned = returned;
    }

    /// Records a clear of `pages`. `is_hot`: those that were touched since their last clear were touched until
    /// now, as a sample shows.
    pub fn cleared(&mut self, start: u64, pages: &PageMask, is_hot: bool, ms: u32) {
        let Some(block) = block(&mut self.blocks, start, pages, self.sampling) else { return };
        for (_, stamp) in block.of(pages).filter(|(_, stamp)| stamp.cleared == 0) {
            stamp.cleared = ms.max(1);
            if is_hot && stamp.found > 0 {
                stamp.found = stamp.cleared;
            }
        }
    }

    /// Records that pages of a block are no longer resident.
    pub fn leave(&mut self, start: u64) {
        if self.left.last() != Some(&start) && self.blocks.contains_key(&start) {
            self.left.push(start);
        }
    }

    /// Up to `most` blocks with pages that are no longer resident: whether these are in swap is to be asked. It goes
    /// round all blocks, because some may change all the time.
    pub fn take_left(&mut self, most: usize) -> Vec<u64> {
        self.left.sort_unstable();
        self.left.dedup();
        let next = self.left.partition_point(|start| *start <= self.taken);
        self.left.rotate_left(next);
        let taken: Vec<u64> = self.left.drain(..self.left.len().min(most)).collect();
        self.taken = taken.last().copied().unwrap_or(self.taken);
        taken
    }

    /// Forgets the pages of a block that are neither resident nor in swap: their memory was freed.
    pub fn keep_only(&mut self, start: u64, pages: &PageMask) {
        if let Some(block) = self.blocks.get_mut(&start) {
            block.keep_only(pages);
            if block.pages.is_empty() {
                self.blocks.remove(&start);
            }
        }
    }

    /// Forgets memory outside of `visible`, which is sorted.
    pub fn keep(&mut self, visible: &[AddrRange]) {
        self.blocks.retain(|start, block| {
            let first = visible.partition_point(|r| r.end <= *start);
            block.keep_only(&pages_in_block(*start, visible[first..].iter().copied()));
            !block.pages.is_empty()
        });
    }

    /// Subtracts `ms` from all times; times before the new origin become 1.
    pub fn rebase(&mut self, ms: u32) {
        let earlier = |at: &mut u32| *at = if *at == 0 { 0 } else { at.saturating_sub(ms).max(1) };
        let stamps = self.blocks.values_mut().flat_map(|b| b.stamps.iter_mut());
        stamps.for_each(|s| [&mut s.found, &mut s.cleared].into_iter().for_each(earlier));
        self.since.1 = self.since.1.saturating_sub(ms);
        earlier(&mut self.resumed);
        earlier(&mut self.small_since);
        self.begun = self.begun.map(|(at, begun)| (at, begun.saturating_sub(ms)));
    }

    /// Whether counting has not begun.
    pub fn is_new(&self) -> bool {
        self.begun.is_none()
    }

    /// Begins or continues to count: the target has this many resident pages in `blocks` blocks, and all targets
    /// together have `all` resident pages. Returns whether the counting begins anew, with more pages.
    pub fn begin(
        &mut self,
        (now, ms): (Nanos, u32),
        blocks: usize,
        pages: impl FnOnce() -> u64,
        all: u64,
    ) -> bool {
        if self.begun.is_none() {
            self.begun = Some((now, ms));
            self.since = (now, ms);
        }
        let all = all / WINDOW_PAGES as u64;
        let is_much = |windows: u64, shift: u32| {
            let (own, all) = (windows >> shift, all >> shift);
            own > MAX_SAMPLED_WINDOWS || all > MAX_WINDOWS_OF_ALL && own > MIN_WINDOWS
        };
        let before = self.sampling;
        let Sampling { shift, blocks: whole } = &mut self.sampling;
        // What the target needs now: it may have been larger.
        let least = if is_large(blocks) { (blocks / WHOLE_BLOCKS).ilog2() } else { 0 };
        *whole = (*whole).max(least);
        *shift = (*shift).max(*whole);
        // Pages in swap and evicted pages of files have stamps too. The number of sampled windows varies by chance.
        let stamps: usize = self.blocks.values().map(|b| b.stamps.len()).sum();
        let counted = (stamps / WINDOW_PAGES) as u64;
        let stored =
            if counted > MAX_SAMPLED_WINDOWS / 8 * 9 { counted << (*shift).min(32) } else { 0 };
        let mut gain = 0;
        let most = stored.max(blocks as u64 * BLOCK_WINDOWS);
        if is_much(most, *shift) || *shift >= least + MIN_GAIN {
            let windows = stored.max(pages() / WINDOW_PAGES as u64);
            let wanted = (least..63).find(|shift| !is_much(windows, *shift)).unwrap_or(63);
            gain = shift.saturating_sub(wanted);
            *shift = (*shift).max(wanted);
        }
        if self.sampling != before {
            self.thin_out();
        }
        if gain < MIN_GAIN || self.has_swapped {
            self.small_since = 0;
        } else if self.small_since == 0 {
            self.small_since = ms.max(1);
        } else if ms.saturating_sub(self.small_since) >= GAIN_FOR_MS {
            let sampling = Sampling { shift: self.sampling.shift - gain, blocks: least };
            let begun = Some((now, ms));
            *self = AgeCounter { sampling, begun, since: (now, ms), ..AgeCounter::default() };
            return true;
        }
        false
    }

    /// Whether a row is due. None is due of a target that was never read.
    pub fn is_due(&self, ms: u32) -> bool {
        self.begun.is_some_and(|(_, begun)| is_row_due(begun, self.since.1, ms))
    }

    /// The ages of all pages, from `blocks` in ascending order. Begins a new row of returned pages.
    pub fn row(
        &mut self,
        blocks: impl Iterator<Item = BlockState>,
        now: Nanos,
        ms: u32,
    ) -> PageAges {
        let errors = std::mem::take(&mut self.errors);
        let mut huge =
            HugeAges { returned: std::mem::take(&mut self.huge_returned), ..HugeAges::default() };
        let mut row = PageAges {
            since: self.since.0,
            begun: self.begun.map_or(now, |(at, _)| at),
            sampling: 1 << self.sampling.shift.min(31),
            returned: std::mem::take(&mut self.returned),
            ..PageAges::default()
        };
        let mean = errors / row.returned.total().max(1);
        row.error_ms = u32::try_from(mean).unwrap_or(u32::MAX);
        self.since = (now, ms);
        let (mut visible, mut counted) = (0_u64, 0_u64);
        let mut there: HashMap<u64, PageMask> = HashMap::new();
        for state in blocks {
            let seen = state.resident.without(&state.hidden);
            visible += u64::from(seen.count());
            row.unknown = row.unknown.saturating_add(state.resident.and(&state.hidden).count());
            // Most blocks of a large target have no sampled pages.
            let Some(block) = self.blocks.get_mut(&state.start) else { continue };
            let known = there.entry(state.start).or_default();
            *known = known.or(&state.resident);
            if state.is_represented {
                continue;
            }
            counted += u64::from(block.pages.and(&seen).count());
            let returned = block.returned;
            for (page, stamp) in block.of(&seen) {
                let age = stamp.age(ms, state.young);
                row.idle.add(age, 1);
                row.untouched += u32::from(!returned.contains(page) && stamp.cleared > 0);
                if state.huge {
                    huge.idle.add(age, 1);
                }
            }
        }
        for (start, block) in &mut self.blocks {
            let away = block.pages.without(&there.get(start).copied().unwrap_or_default());
            for (_, stamp) in block.of(&away).filter(|(_, stamp)| stamp.is_known()) {
                row.swapped.add(stamp.age(ms, YoungAge::Unknown), 1);
            }
        }
        row.huge = (huge != HugeAges::default()).then(|| Box::new(huge));
        let swapped = row.swapped.total();
        self.has_swapped = swapped > 0;
        scaled(row, &Factors::new((visible, counted), swapped, self.sampling.shift))
    }

    /// Forgets pages that are no longer sampled.
    fn thin_out(&mut self) {
        let sampling = self.sampling;
        self.blocks.retain(|start, block| {
            block.keep_only(&sampling.pages(*start, &block.pages));
            !block.pages.is_empty()
        });
    }
}

/// The numbers of pages that one counted page stands for.
struct Factors {
    resident: f64,
    swapped: f64,
    returned: f64,
}

impl Factors {
    /// `counted` of `visible` resident pages were counted, and `swapped` pages in swap. How many pages are in swap is
    /// not known, so the sampling decides. Touched pages were resident or in swap.
    fn new((visible, counted): (u64, u64), swapped: u64, shift: u32) -> Self {
        let each = 2f64.powi(shift.try_into().unwrap_or(i32::MAX));
        let all = visible as f64 + swapped as f64 * each;
        Factors {
            resident: visible as f64 / counted.max(1) as f64,
            swapped: each,
            returned: if counted + swapped == 0 { each } else { all / (counted + swapped) as f64 },
        }
    }
}

/// `row` with all counts times their factors.
fn scaled(row: PageAges, by: &Factors) -> PageAges {
    let huge = |h: &HugeAges| HugeAges {
        idle: h.idle.scaled(by.resident),
        returned: h.returned.scaled(by.returned),
    };
    PageAges {
        idle: row.idle.scaled(by.resident),
        untouched: (f64::from(row.untouched) * by.resident).round() as u32,
        swapped: row.swapped.scaled(by.swapped),
        returned: row.returned.scaled(by.returned),
        huge: row.huge.as_deref().map(|h| Box::new(huge(h))),
        ..row
    }
}

impl Stamp {
    /// Whether a touch or a clear of the page is known.
    fn is_known(self) -> bool {
        self.found > 0 || self.cleared > 0
    }

    /// The least and the greatest possible age at `ms`, in ms, of a page that was seen untouched or touched.
    fn bounds(self, ms: u32) -> (u64, u64) {
        let age = |since: u32| u64::from(ms.saturating_sub(since));
        let low = if self.cleared > 0 { age(self.cleared) } else { 0 };
        let high = if self.found > 0 { age(self.found) } else { low };
        (low, high.max(low))
    }

    /// The likely age at `ms`, in ms.
    fn age(self, ms: u32, young: YoungAge) -> u64 {
        match (self.cleared, young) {
            (0, YoungAge::Hot) => 0,
            (0, YoungAge::IdleSince(since)) => ms.saturating_sub(since).into(),
            _ => self.likely(ms),
        }
    }

    /// The likely age at `ms`, in ms, of a page that is not presumed hot or idle.
    fn likely(self, ms: u32) -> u64 {
        let (low, high) = self.bounds(ms);
        let between = if self.between > 0 { u64::from(self.between) } else { u64::MAX };
        likely(low, high, high.min(between))
    }

    /// Notes a touch at `ms` after a clear.
    fn note_time_between(&mut self, ms: u32) {
        // A clear falls into the middle of the time between two touches, on average.
        let now = ms.saturating_sub(self.cleared).saturating_mul(2).max(1);
        self.between = if self.between == 0 { now } else { self.between.midpoint(now).max(1) };
    }
}

/// The likely age of a page, in ms, that was touched `high` ago, and maybe again until `low` ago, if it is touched
/// each `between` on average. If that is not known, it is the age itself: pages of age T are touched about once
/// in T.
///
/// In a time L of touches at random times, T apart on average, the last one comes T (1 - exp(-L/T)) before the end
/// or at the first. Example: touched 12 s ago and cleared 9 s ago. In the 3 s between it was probably not touched
/// again, as pages of this age are touched each 12 s. So the last touch was 2.7 s before the clear, and the age is
/// 11.7 s.
fn likely(low: u64, high: u64, between: u64) -> u64 {
    let (t, l) = (between.max(1) as f64, (high - low) as f64);
    low + (t * -(-l / t).exp_m1()).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 7 * BLOCK_SIZE;

    fn at(ms: u32) -> Nanos {
        Nanos(u64::from(ms) * 1_000_000)
    }

    fn begun() -> AgeCounter {
        let mut ages = AgeCounter::default();
        ages.begin((at(0), 0), 1, || 512, 1);
        ages
    }

    fn state(resident: PageMask) -> BlockState {
        BlockState { start: BLOCK, resident, ..BlockState::default() }
    }

    fn row(ages: &mut AgeCounter, state: BlockState, ms: u32) -> PageAges {
        ages.row(std::iter::once(state), at(ms), ms)
    }

    /// The number of pages in the bin of this age, in s.
    fn of(h: &AgeHistogram, seconds: u64) -> u32 {
        let bin = |i: &usize| AgeHistogram::lowest_ms(*i).is_some_and(|ms| ms <= seconds * 1000);
        (0..h.0.len()).take_while(bin).last().map_or(0, |i| h.0[i])
    }

    /// Pages 0 to 9 are found touched between 1 and 3 s, and cleared at 4 s; five of them are touched at 24 s.
    #[test]
    fn pages_have_ages_and_return_with_them() {
        let mut ages = begun();
        ages.found(BLOCK, &PageMask::span(0, 10), false, (1000, 3000));
        ages.cleared(BLOCK, &PageMask::span(0, 20), false, 4000);
        ages.found(BLOCK, &PageMask::span(0, 5), false, (24_000, 24_000));
        let first = row(&mut ages, state(PageMask::span(0, 20)), 34_000);
        assert_eq!((first.returned.total(), of(&first.returned, 21)), (5, 5), "20 to 22 s");
        assert_eq!(first.error_ms, 1000, "they were touched between 2 and 4 s");
        assert_eq!((first.idle.total(), first.untouched), (20, 15));
        assert_eq!(of(&first.idle, 31), 15, "five since 2 to 4 s, and ten since the clear at 4 s");
        assert_eq!(first.since, at(0));
        let row = row(&mut ages, state(PageMask::span(0, 20)), 44_000);
        assert_eq!((row.returned.total(), row.since), (0, at(34_000)));
    }

    #[test]
    fn samples_count_for_young_pages() {
        let age = |young| {
            let mut ages = begun();
            ages.found(BLOCK, &PageMask::span(0, 10), false, (1000, 1000));
            let state = BlockState { young, ..state(PageMask::span(0, 10)) };
            let row = row(&mut ages, state, 33_000);
            (0..40).find(|s| of(&row.idle, *s) == 10).unwrap()
        };
        assert_eq!(age(YoungAge::Hot), 0);
        assert!((20..=26).contains(&age(YoungAge::IdleSince(10_000))));
        assert!((16..=21).contains(&age(YoungAge::Unknown)), "32 s x (1 - 1/e)");
        let mut ages = begun();
        ages.found(BLOCK, &PageMask::span(0, 10), false, (1000, 1000));
        ages.reactivated(BLOCK, &PageMask::span(0, 10), false, 10_000, 30_000);
        let row = row(&mut ages, state(PageMask::span(0, 10)), 33_000);
        assert_eq!(of(&row.returned, 20), 10);
    }

    /// A page that is touched soon after each clear is hot, also if its next clear comes late.
    #[test]
    fn pages_that_returned_at_once_are_young() {
        let mut ages = begun();
        for s in [0, 20, 40] {
            ages.found(BLOCK, &PageMask::span(0, 10), false, (s * 1000 + 1, s * 1000 + 3));
            ages.cleared(BLOCK, &PageMask::span(0, 10), false, (s + 20) * 1000);
        }
        let first = row(&mut ages, state(PageMask::span(0, 10)), 60_500);
        assert_eq!(first.idle.at_least(1.0), 0.0, "cleared half a second ago");
        assert_eq!(first.returned.at_least(10.0), 10.0, "at first nothing is known");
        ages.found(BLOCK, &PageMask::span(0, 10), false, (60_501, 60_503));
        let later = row(&mut ages, state(PageMask::span(0, 10)), 90_000);
        assert_eq!((later.returned.at_least(5.0), later.idle.at_least(5.0)), (0.0, 0.0));
    }

    #[test]
    fn pages_in_swap_keep_their_ages_and_freed_ones_do_not() {
        let mut ages = begun();
        ages.found(BLOCK, &PageMask::span(0, 10), false, (1000, 1000));
        ages.cleared(BLOCK, &PageMask::span(0, 10), false, 1000);
        ages.leave(BLOCK);
        assert_eq!(ages.take_left(9), [BLOCK]);
        assert_eq!(ages.take_left(9), [0; 0]);
        // Pages 0 and 1 are resident, 2 to 5 in swap.
        ages.keep_only(BLOCK, &PageMask::span(0, 6));
        let there = row(&mut ages, state(PageMask::span(0, 2)), 17_000);
        assert_eq!((there.idle.total(), of(&there.swapped, 16)), (2, 4));
        ages.found(BLOCK, &PageMask::span(0, 10), false, (33_000, 33_000));
        let there = row(&mut ages, state(PageMask::span(0, 10)), 33_000);
        assert_eq!((there.returned.total(), there.swapped.total()), (6, 0));
        ages.keep(&[AddrRange::new(BLOCK + 4 * PAGE_SIZE, BLOCK + 2 * BLOCK_SIZE)]);
        ages.cleared(BLOCK, &PageMask::span(0, 10), false, 34_000);
        ages.found(BLOCK, &PageMask::span(0, 10), false, (44_000, 44_000));
        let there = row(&mut ages, state(PageMask::span(4, 10)), 44_000);
        assert_eq!(there.returned.total(), 10, "four of them new, but cleared");
        ages.keep(&[]);
        assert_eq!(
            row(&mut ages, state(PageMask::default()), 45_000),
            PageAges { since: at(44_000), sampling: 1, ..PageAges::default() }
        );
    }

    /// Of four blocks, the first two change all the time.
    #[test]
    fn all_blocks_with_missing_pages_have_their_turn() {
        let mut ages = begun();
        let blocks = [7, 8, 9, 10].map(|n| n * BLOCK_SIZE);
        blocks.iter().for_each(|b| ages.cleared(*b, &PageMask::span(0, 10), false, 1000));
        blocks.iter().for_each(|b| ages.leave(*b));
        assert_eq!(ages.take_left(2), blocks[..2]);
        blocks[..2].iter().for_each(|b| ages.leave(*b));
        assert_eq!(ages.take_left(2), blocks[2..]);
        assert_eq!(ages.take_left(2), blocks[..2]);
    }

    /// One in 16 windows of 1024 blocks is counted.
    fn sampled(ages: &mut AgeCounter) -> impl Fn(PageMask) -> Vec<BlockState> + use<> {
        ages.begin((at(0), 0), 1024, || 1024 * 512, 1);
        assert_eq!(ages.sampling.shift, 4);
        let start = |i: u64| (i + 1000) * BLOCK_SIZE;
        for i in 0..1024 {
            ages.found(start(i), &PageMask::span(0, 256), false, (1000, 1000));
            ages.cleared(start(i), &PageMask::span(0, 512), false, 1000);
        }
        move |resident| {
            (0..1024).map(|i| BlockState { start: start(i), ..state(resident) }).collect()
        }
    }

    fn is_near(pages: &AgeHistogram, expected: u64) -> bool {
        (pages.total() as f64 / expected as f64 - 1.0).abs() < 0.1
    }

    /// A sleeping process is paged out as a whole, or but for a few pages, none of which is counted.
    #[test]
    fn memory_in_swap_does_not_depend_on_what_is_resident() {
        for resident in [0, 1, 3] {
            let mut ages = AgeCounter::default();
            let states = sampled(&mut ages);
            ages.row(states(PageMask::span(0, 512)).into_iter(), at(10_000), 10_000);
            // Pages of windows that are not counted.
            let uncounted = |s: &BlockState| ages.sampling.pages(s.start, &s.resident).is_empty();
            let few = states(PageMask::span(0, 16)).into_iter().filter(uncounted);
            let few = few.take(resident).collect::<Vec<_>>().into_iter();
            let away = ages.row(few.clone(), at(20_000), 20_000);
            assert!(is_near(&away.swapped, 1024 * 512), "{resident}: {}", away.swapped.total());
            // All of it returns, and is in swap again at the end of the row.
            for i in 0..1024 {
                ages.found(
                    (i + 1000) * BLOCK_SIZE,
                    &PageMask::span(0, 512),
                    false,
                    (25_000, 25_000),
                );
            }
            let back = ages.row(few, at(30_000), 30_000);
            assert!(is_near(&back.returned, 1024 * 512), "{resident}: {}", back.returned.total());
        }
    }

    #[test]
    fn huge_and_hidden_pages_are_counted_apart() {
        let mut ages = begun();
        let all = PageMask::span(0, 512);
        ages.found(BLOCK, &all, true, (1000, 1000));
        ages.cleared(BLOCK, &all, false, 1000);
        ages.found(BLOCK, &all, true, (9000, 9000));
        let state = BlockState { huge: true, hidden: PageMask::span(500, 512), ..state(all) };
        let row = row(&mut ages, state, 10_000);
        assert_eq!((row.idle.total(), row.unknown), (500, 12));
        let huge = row.huge.unwrap();
        assert_eq!((huge.idle.total(), huge.returned.total()), (500, 512));
    }

    /// 16 GiB that are idle: a part is counted, and stands for all.
    #[test]
    fn the_sample_stays_small_and_stands_for_all() {
        let mut ages = AgeCounter::default();
        ages.begin((at(0), 0), 8192, || 8192 * 512, 1);
        let all = PageMask::span(0, 512);
        let start = |i: u64| (i + 1000) * BLOCK_SIZE;
        let states = || (0..8192).map(|i| BlockState { start: start(i), ..state(all) });
        for i in 0..8192 {
            ages.cleared(start(i), &all, false, 1000);
        }
        ages.row(states(), at(10_000), 10_000);
        for i in 0..8192 {
            ages.found(start(i), &PageMask::span(0, 128), false, (17_000, 17_000));
        }
        let row = ages.row(states(), at(20_000), 20_000);
        assert!(row.sampling >= 128, "{}", row.sampling);
        let pages: usize = ages.blocks.values().map(|b| b.stamps.len()).sum();
        assert!(pages <= MAX_SAMPLED_WINDOWS as usize * WINDOW_PAGES * 11 / 10, "{pages}");
        ages.begin((at(20_000), 20_000), 8192, || 8192 * 512, 100 * 8192 * 512);
        let less: usize = ages.blocks.values().map(|b| b.stamps.len()).sum();
        assert!(
            (pages / 80..pages / 30).contains(&less),
            "a hundred targets have less each: {less}"
        );
        let (idle, returned) = (row.idle.total() as f64, row.returned.total() as f64);
        assert!((idle / (8192.0 * 512.0) - 1.0).abs() < 0.01, "{idle}");
        assert!((returned / (8192.0 * 128.0) - 1.0).abs() < 0.1, "{returned}");
    }

    /// 128 MiB are resident of a file of 8 GiB that is read once.
    #[test]
    fn the_sample_stays_small_if_most_of_a_file_is_evicted() {
        let mut ages = AgeCounter::default();
        let (all, resident) = (PageMask::span(0, 512), 64 * 512);
        for i in 0..4096 {
            ages.begin((at(i * 10), i * 10), 64, || resident, resident);
            let start = (u64::from(i) + 1000) * BLOCK_SIZE;
            ages.found(start, &all, false, (i * 10, i * 10));
            ages.cleared(start, &all, false, i * 10);
        }
        let pages: usize = ages.blocks.values().map(|b| b.stamps.len()).sum();
        let most = MAX_SAMPLED_WINDOWS as usize * WINDOW_PAGES;
        assert!((most / 4..most * 12 / 10).contains(&pages), "{pages}");
        let last = (1032 + 4000..1032 + 4064).map(|i| i * BLOCK_SIZE);
        let states = last.map(|start| BlockState { start, ..state(all) });
        let row = ages.row(states, at(50_000), 50_000);
        assert!(is_near(&row.swapped, 4032 * 512), "{}", row.swapped.total());
        ages.begin((at(50_000), 50_000), 64, || resident, resident);
        assert_eq!(ages.sampling.shift, row.sampling.ilog2(), "it does not change any more");
        // Memory that is freed needs no stamps.
        (1000..5096).for_each(|i| ages.keep_only(i * BLOCK_SIZE, &PageMask::default()));
        assert!(ages.blocks.is_empty());
    }

    /// A database of 10 GiB next to a build of 1000 processes of 8 MiB.
    #[test]
    fn a_large_target_is_counted_by_its_share_of_all_memory() {
        let (database, process) = (5120 * 512, 4 * 512);
        let windows = |pages: u64| {
            let mut ages = AgeCounter::default();
            let blocks = (pages / 512) as usize;
            ages.begin((at(0), 0), blocks, || pages, database + 1000 * process);
            (pages / WINDOW_PAGES as u64) >> ages.sampling.shift
        };
        let (of_all, of_each) = (windows(database), windows(process));
        assert!((1024..=MAX_SAMPLED_WINDOWS).contains(&of_all), "{of_all}");
        assert!((MIN_WINDOWS / 2..=MIN_WINDOWS).contains(&of_each), "{of_each}");
    }

    #[test]
    fn a_later_origin_changes_no_age() {
        let mut ages = begun();
        ages.found(BLOCK, &PageMask::span(0, 10), false, (100_000, 100_000));
        ages.cleared(BLOCK, &PageMask::span(0, 10), false, 100_000);
        ages.rebase(90_000);
        let row = row(&mut ages, state(PageMask::span(0, 10)), 26_000);
        assert_eq!(of(&row.idle, 16), 10);
    }

    /// A monitor ends 40 s after pages 0 to 9 were touched and cleared, and the next one begins 20 s later. Meanwhile
    /// pages 0 to 4 were touched. Pages 10 to 14 were touched long ago, and never cleared.
    #[test]
    fn ages_outlive_their_monitor() {
        let mut ages = begun();
        ages.found(BLOCK, &PageMask::span(0, 15), false, (10_000, 10_000));
        ages.cleared(BLOCK, &PageMask::span(0, 10), false, 10_000);
        let kept = ages.kept(at(50_000), 50_000).unwrap();
        assert_eq!(kept.blocks[0].stamps[0], [40_000, 40_000, 0]);
        let mut next = AgeCounter::default();
        // Its clock begins 930 s before it.
        next.resume(kept.clone(), (910_000, 860_000), (at(70_000), 930_000));
        assert_eq!(next.kept(at(50_000), 910_000).unwrap(), kept);
        assert_eq!(next.take_left(9), [BLOCK], "whether it is still there is to be asked");
        next.begin((at(70_000), 930_000), 1, || 512, 1);
        let young = PageMask::span(0, 5).or(&PageMask::span(10, 15));
        next.found_first(BLOCK, &young, false, 930_000);
        let first = row(&mut next, state(PageMask::span(0, 15)), 970_000);
        assert_eq!(first.returned.total(), 0, "what was touched within the gap, and how often?");
        assert_eq!(of(&first.idle, 100), 5, "untouched by both monitors");
        assert_eq!((first.begun, first.since), (at(0), at(70_000)));
        assert_eq!(first.untouched, 5, "the others were touched, or never cleared");
        assert_eq!(first.idle.at_least(25.0), 15.0);
        assert!(
            first.idle.at_least(50.0) >= 10.0,
            "young pages that were not cleared keep their age"
        );
    }

    /// Memory that was in swap throughout a restart returns once all resident memory was read.
    #[test]
    fn what_returns_after_the_first_read_was_not_touched_before() {
        let mut ages = begun();
        ages.cleared(BLOCK, &PageMask::span(0, 10), false, 10_000);
        let kept = ages.kept(at(50_000), 50_000).unwrap();
        let mut next = AgeCounter::default();
        next.resume(kept, (50_000, 0), (at(60_000), 60_000));
        next.end_gap();
        next.found_first(BLOCK, &PageMask::span(0, 10), false, 70_000);
        let first = row(&mut next, state(PageMask::span(0, 10)), 80_000);
        assert_eq!((first.returned.total(), first.returned.at_least(50.0)), (10, 10.0));
    }

    /// Beside other processes, which end, one in 64 windows was counted.
    #[test]
    fn the_sample_grows_again_after_an_hour() {
        let mut ages = AgeCounter::default();
        let mut begin = |minute: u32, all: u64, swapped: bool| {
            ages.has_swapped = swapped;
            let now = (at(minute * 60_000), minute * 60_000);
            let anew = ages.begin(now, 32, || 32 * 512, all);
            (anew, ages.sampling.shift, ages.begun)
        };
        let (all, own) = (64 * 4096 * 16, 32 * 512);
        let old = Some((at(0), 0));
        assert_eq!(begin(0, all, false), (false, 6, old));
        assert_eq!(begin(1, own, false), (false, 6, old));
        assert_eq!(begin(30, all, false), (false, 6, old));
        assert_eq!(begin(31, own, false), (false, 6, old));
        assert_eq!(
            begin(90, own, true),
            (false, 6, old),
            "the ages of memory in swap would be lost"
        );
        assert_eq!(begin(91, own, false), (false, 6, old));
        assert_eq!(begin(150, own, false), (false, 6, old));
        assert_eq!(begin(151, own, false), (true, 0, Some((at(151 * 60_000), 151 * 60_000))));
        assert!(!begin(300, own, false).0);
    }

    /// It was observed by samples; then it has freed all but 200 MiB.
    #[test]
    fn a_target_that_is_no_longer_large_is_counted_in_all_blocks() {
        let mut ages = AgeCounter::default();
        let mut begin = |minute: u32, blocks: usize| {
            let pages = blocks as u64 * 512;
            let anew = ages.begin((at(minute * 60_000), minute * 60_000), blocks, || pages, pages);
            (anew, ages.sampling.blocks)
        };
        assert_eq!(begin(0, 40_000), (false, 8));
        assert!((1..61).all(|minute| begin(minute, 100) == (false, 8)));
        assert_eq!(begin(61, 100), (true, 0));
    }

    #[test]
    fn rows_come_often_at_first() {
        assert!(!AgeCounter::default().is_due(60_000), "it was never read");
        let mut ages = begun();
        let mut due = Vec::new();
        for s in 0..1000 {
            if ages.is_due(s * 1000) {
                row(&mut ages, state(PageMask::default()), s * 1000);
                due.push(s);
            }
        }
        assert_eq!(due[..6], [10, 20, 30, 40, 50, 60]);
        assert_eq!(due.windows(2).map(|w| w[1] - w[0]).max(), Some(60));
    }

    #[test]
    fn likely_ages_lie_between_their_bounds() {
        assert_eq!(likely(9000, 12_000, 12_000), 11_654);
        assert_eq!(likely(5000, 5000, 5000), 5000);
        assert_eq!(likely(0, 0, 0), 0);
        assert_eq!(likely(0, 10_000, 10_000), 6321);
        assert_eq!(likely(1000, 10_000, 10), 1010, "it is touched all the time");
    }
}
