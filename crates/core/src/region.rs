//! Regions of adjacent pages taken to be equally hot, and the rules that keep them so.
//!
//! The rules and constants are those of the kernel's `mm/damon/core.c`, named as there; the kernel's
//! own test vectors are the tests below. They work on plain numbers: `accesses_bp` is the kernel's
//! `nr_accesses` on a scale that does not depend on the intervals (10,000 of 10,000 is its maximum).

use std::collections::BTreeSet;
use std::time::Duration;

use rand_core::Rng;

use crate::ops::Seen;
use crate::range::{AddrRange, PAGE_SIZE, align_down, align_up};
use crate::time::Nanos;
use crate::unknown::{Pages, Unknown};

/// A window whose accessed bits have been cleared, to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClearedWindow {
    pub range: AddrRange,
    pub cleared_at: Nanos,
    /// It held accessed pages, so that clearing cost a TLB shootdown.
    pub paid: bool,
    /// Sampling intervals since.
    pub reads: u32,
}

/// What the looks of one aggregation interval have counted in a region.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    /// looks that were answered
    pub looks: u32,
    /// pages looked at
    pub pages: u64,
    /// resident ones whose accesses can be seen
    pub present: u64,
    /// those accessed in a sampling interval
    pub young: u64,
    /// resident ones whose accesses cannot be seen
    pub unknown: [u64; Unknown::ALL.len()],
    /// time from clear to read for one sampling interval, summed over looks
    pub exposure: Duration,
    /// Whether a page was accessed, but too late to count: it is not cold.
    pub later: bool,
}

impl Tally {
    /// Adds one look at a window cleared `intervals` sampling intervals ago and found untouched
    /// until the last of them; a dropped one ([`Seen::pages`] zero) changes nothing.
    ///
    /// It counts as a look in each of the intervals, so that what is touched once in a while does
    /// not look touched all the time. E.g. 16 pages accessed in the last of 4 intervals are 16 of
    /// 64.
    pub fn add(&mut self, seen: &Seen, cleared_at: Nanos, intervals: u32) {
        if seen.pages == 0 {
            return;
        }
        let intervals = intervals.max(1);
        let times = |pages: u32| u64::from(pages) * u64::from(intervals);
        self.looks += intervals;
        self.pages += times(seen.pages);
        self.present += times(seen.present);
        self.young += u64::from(seen.young);
        self.later |= seen.later > 0;
        for (sum, n) in self.unknown.iter_mut().zip(seen.unknown.0) {
            *sum += times(n);
        }
        self.exposure += seen.read_at.since(cleared_at);
    }

    /// Accessed pages of those whose accesses can be seen or that are absent, of 10,000.
    ///
    /// Absent pages count as not accessed, as in the kernel, so that borders between resident and
    /// absent memory are found; unknown ones do not count at all.
    #[must_use]
    pub fn accesses_bp(&self) -> u32 {
        let pages = self.pages.saturating_sub(self.unknown.iter().sum());
        // However little was accessed, it is more than nothing.
        let least = u32::from(self.young > 0 || self.later);
        to_bp(self.young as f64 / pages.max(1) as f64).max(least)
    }

    fn shares(&self) -> Shares {
        let of_all = |n: u64| if self.pages == 0 { 0.0 } else { n as f64 / self.pages as f64 };
        Shares {
            looks: self.looks,
            pages: self.pages,
            visible: of_all(self.present),
            young: of_all(self.young),
            unknown: self.unknown.map(of_all),
            exposure: self.exposure.checked_div(self.looks).unwrap_or_default(),
        }
    }
}

/// A [`Tally`] as shares of all pages, so that regions of different size can be averaged.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Shares {
    pub looks: u32,
    pub pages: u64,
    pub visible: f64,
    pub young: f64,
    pub unknown: [f64; Unknown::ALL.len()],
    pub exposure: Duration,
}

impl Shares {
    fn mean(a: &Shares, weight_a: u64, b: &Shares, weight_b: u64) -> Shares {
        let (a, b) = (a.or_unseen(), b.or_unseen());
        let wa = weight_a as f64 / (weight_a + weight_b).max(1) as f64;
        let mix = |x: f64, y: f64| x * wa + y * (1.0 - wa);
        let exposure = match (a.looks, b.looks) {
            (_, 0) => a.exposure,
            (0, _) => b.exposure,
            _ => a.exposure.mul_f64(wa) + b.exposure.mul_f64(1.0 - wa),
        };
        let mut unknown = a.unknown;
        unknown.iter_mut().zip(b.unknown).for_each(|(x, y)| *x = mix(*x, y));
        Shares {
            looks: a.looks.saturating_add(b.looks),
            pages: a.pages + b.pages,
            visible: mix(a.visible, b.visible),
            young: mix(a.young, b.young),
            unknown,
            exposure,
        }
    }

    /// What was not looked at is unseen, all of it.
    fn or_unseen(mut self) -> Shares {
        if self.looks == 0 {
            self.unknown[Unknown::Unseen.index()] = 1.0;
        }
        self
    }
}

/// Adjacent pages taken to be equally hot.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    /// where
    pub range: AddrRange,
    /// share of pages found accessed in a sampling interval, of 10,000, over the last complete
    /// aggregation interval
    pub accesses_bp: u32,
    /// the same for the interval before
    pub last_accesses_bp: u32,
    /// aggregation intervals for which it has kept its heat
    pub age: u32,
    /// counts of the interval under way
    pub tally: Tally,
    pub(crate) shares: Shares,
    pub(crate) window: Option<ClearedWindow>,
    /// sampling interval, counted from the monitor's begin, in which a window may be cleared again
    pub(crate) next_clear: u64,
    /// Whether its heat is clear, so that few looks will do. So at first: all memory looks accessed
    /// then, and one interval shows where to look closer.
    pub(crate) settled: bool,
    /// whether it was touched a little, after nothing
    pub(crate) sudden: bool,
    /// Intervals in which much was accessed, one after the other. Unlike its age, that goes on where
    /// heat varies, as with a program that turns to other memory once in a while.
    pub(crate) much: u32,
}

impl Region {
    /// A region of which nothing is known yet.
    #[must_use]
    pub fn new(range: AddrRange) -> Self {
        Region {
            range,
            accesses_bp: 0,
            last_accesses_bp: 0,
            age: 0,
            tally: Tally::default(),
            shares: Shares::default(),
            window: None,
            next_clear: 0,
            settled: true,
            sudden: false,
            much: 0,
        }
    }

    /// The same knowledge about another range: a part of this one.
    #[must_use]
    pub fn resized(&self, range: AddrRange) -> Self {
        Region { range, window: None, ..self.clone() }
    }

    /// Accesses over the last full interval's length, ending now: see [`moving_sum`].
    #[must_use]
    pub fn moving_accesses_bp(&self, left_bp: u32) -> u32 {
        let passed = u64::from(self.tally.accesses_bp()) * u64::from(10_000 - left_bp.min(10_000));
        moving_sum(
            u32::try_from(passed / 10_000).unwrap_or(u32::MAX),
            self.last_accesses_bp,
            left_bp,
        )
    }

    /// Whether a window is to be chosen and cleared in sampling interval `tick`.
    pub(crate) fn wants_window(&self, tick: u64) -> bool {
        self.window.is_none() && self.next_clear <= tick
    }

    /// Watches a window that was cleared in sampling interval `tick`, unless the look was dropped.
    /// If it cost something, the next one is not before `clear_every` intervals, once settled.
    pub(crate) fn watch(&mut self, range: AddrRange, cleared: &Seen, tick: u64, clear_every: u32) {
        let paid = cleared.young > 0;
        let window = ClearedWindow { range, cleared_at: cleared.cleared_at, paid, reads: 0 };
        self.window = (cleared.pages > 0).then_some(window);
        if paid {
            self.next_clear = tick + u64::from(self.clear_every(clear_every));
        }
    }

    /// Ends the interval under way: what was counted becomes `accesses_bp`. If nothing was seen,
    /// nothing is known anew, and it stays.
    pub(crate) fn conclude(&mut self) {
        self.shares = self.tally.shares();
        if self.is_seen() {
            self.accesses_bp = self.tally.accesses_bp();
        }
    }

    /// Whether splitting would find nothing, or not now. Being looked at in random places, a region
    /// will show when that is no longer so.
    ///
    /// All looks of the last interval agreed, on no access at all or, if there were many, on accesses
    /// to every page; or what was untouched before was touched a little, perhaps in one burst.
    pub(crate) fn stays_whole(&self) -> bool {
        let all = self.accesses_bp >= UNIFORM_BP && (self.settled || self.shares.looks >= MANY);
        self.accesses_bp == 0 || all || self.sudden
    }

    /// Whether a look found anything but memory whose accesses cannot be seen.
    fn is_seen(&self) -> bool {
        self.shares.looks > 0 && self.shares.unknown.iter().sum::<f64>() < 1.0 - 1e-9
    }

    /// Begins the next interval. Heat that was not seen was not kept.
    ///
    /// Its heat is clear if next to nothing was accessed, or as much of it as to be hot in any case,
    /// for some intervals: a few looks that agree may be chance where a border runs through. E.g. if
    /// a quarter is cold, 3 looks meet only hot windows in 4 of 10 cases, 20 looks in 3 of 1000. Many
    /// looks are for finding borders: of what is too small to be split (`unit` is what regions are cut
    /// at), a few tell enough.
    pub(crate) fn restart(&mut self, unit: u64) {
        if !self.is_seen() {
            self.age = 0;
        }
        let little = self.accesses_bp <= LITTLE_BP;
        self.sudden = little && self.last_accesses_bp == 0;
        self.much = if self.accesses_bp >= MUCH_BP { self.much.saturating_add(1) } else { 0 };
        let much = self.much > SETTLED_AFTER;
        let small = is_whole(self.range.len(), unit);
        self.settled = self.is_seen() && (little || much || small);
        self.last_accesses_bp = self.accesses_bp;
        self.tally = Tally::default();
    }

    /// Forgets the interval under way, not what was known before it.
    pub(crate) fn begin_anew(&mut self) {
        self.tally = Tally::default();
        self.window = None;
        self.settled = false;
    }

    /// Sampling intervals from one clear to the next at least.
    pub(crate) fn clear_every(&self, when_settled: u32) -> u32 {
        if self.settled { when_settled } else { 1 }
    }

    fn split_at(&self, addr: u64) -> (Region, Region) {
        (
            self.resized(AddrRange::new(self.range.start, addr)),
            self.resized(AddrRange::new(addr, self.range.end)),
        )
    }
}

/// Accesses of the interval under way, completed by the last one's for the part still to come.
///
/// `left_bp` is that part, of 10,000. E.g. 3 so far, 10 in the last one, 70 % left: 3 + 7 = 10.
/// As `damon_mvsum` of Linux 7.3.
#[must_use]
pub fn moving_sum(current: u32, last: u32, left_bp: u32) -> u32 {
    let rest = u64::from(last) * u64::from(left_bp) / 10_000;
    current.saturating_add(u32::try_from(rest).unwrap_or(u32::MAX))
}

/// Counts up the age of regions that kept their heat and restarts the others' (a difference above
/// `threshold`, or from or to not accessed at all).
pub fn age_regions(regions: &mut [Region], threshold: u32) {
    for r in regions {
        let changed = r.accesses_bp.abs_diff(r.last_accesses_bp) > threshold
            || (r.accesses_bp == 0) != (r.last_accesses_bp == 0);
        r.age = if changed { 0 } else { r.age.saturating_add(1) };
    }
}

/// Makes `left` cover `right` too, which must follow it at once. Figures become the means of both,
/// weighted by size, rounded down as in the kernel. Within an interval, the looks at the bigger one
/// speak for both.
pub fn merge_two(left: &mut Region, right: &Region) {
    let (l, r) = (left.range.len(), right.range.len());
    let mean = |x: u32, y: u32| {
        let sum = u128::from(x) * u128::from(l) + u128::from(y) * u128::from(r);
        u32::try_from(sum / u128::from((l + r).max(1))).unwrap_or(u32::MAX)
    };
    left.accesses_bp = mean(left.accesses_bp, right.accesses_bp);
    left.last_accesses_bp = mean(left.last_accesses_bp, right.last_accesses_bp);
    left.age = mean(left.age, right.age);
    left.shares = Shares::mean(&left.shares, l, &right.shares, r);
    if r > l {
        left.tally = right.tally;
    }
    left.range.end = right.range.end;
    left.window = None;
    left.settled &= right.settled;
    left.much = left.much.min(right.much);
}

/// So little that it is not hot: 10 Hz are 1800 at 20 ms.
const LITTLE_BP: u32 = 1_500;
/// So much that it is hot: 35 Hz at 20 ms.
const MUCH_BP: u32 = 5_000;
const SETTLED_AFTER: u32 = 3;
/// Looks whose agreement is not chance.
const MANY: u32 = 10;

/// Pages are missed now and then by chance, or because somebody else has cleared them.
const UNIFORM_BP: u32 = 9_900;

/// The threshold that tells nothing apart.
pub(crate) const ANY_DIFFERENCE: u32 = 10_000;

/// Merges neighbours that touch, differ by at most `threshold`, and together have at most `limit`
/// bytes. What cannot be seen keeps apart from what can, as long as differences count at all.
pub fn merge_regions(regions: &mut Vec<Region>, threshold: u32, limit: u64) {
    // `dedup_by` hands over the later element first and drops it on `true`.
    regions.dedup_by(|right, left| {
        let fits = left.range.end == right.range.start
            && left.accesses_bp.abs_diff(right.accesses_bp) <= threshold
            && left.range.len() + right.range.len() <= limit
            && (left.is_seen() == right.is_seen() || threshold >= ANY_DIFFERENCE);
        if fits {
            merge_two(left, right);
        }
        fits
    });
}

/// Bytes a region may have so that `total` bytes make at least `min_regions`, aligned up to `unit`.
#[must_use]
pub fn size_limit(total: u64, min_regions: u32, unit: u64) -> u64 {
    align_up((total / u64::from(min_regions.max(1))).max(unit), unit)
}

/// Cuts regions above `limit` bytes at the last multiple of `unit` within `limit` of their start.
pub fn apply_min_nr_regions(regions: &mut Vec<Region>, limit: u64, unit: u64) {
    if limit == 0 || regions.iter().all(|r| r.range.len() <= limit) {
        return;
    }
    *regions = regions
        .drain(..)
        .flat_map(|mut r| {
            let mut parts = Vec::new();
            while r.range.len() > limit {
                let far = r.range.start + limit;
                let cut = align_down(far, unit);
                let (left, right) = r.split_at(if cut > r.range.start { cut } else { far });
                parts.push(left);
                r = right;
            }
            parts.push(r);
            parts
        })
        .collect();
}

/// `range` in `parts` pieces of equal size, cut at multiples of `unit`, the last one taking the
/// rest. One piece if they would be empty.
#[must_use]
pub fn evenly_split(range: AddrRange, parts: u64, unit: u64) -> Vec<AddrRange> {
    let piece = align_down(range.len() / parts.max(1), unit);
    if piece == 0 || parts <= 1 {
        return vec![range];
    }
    let cut = |i| match i {
        0 => range.start,
        i if i == parts => range.end,
        i => align_down(range.start + i * piece, unit),
    };
    (0..parts).map(|i| AddrRange::new(cut(i), cut(i + 1))).filter(|r| !r.is_empty()).collect()
}

/// The regions that cover exactly `areas` (sorted, disjoint): what was known is kept where it still
/// holds, what is new starts from nothing.
#[must_use]
pub fn set_regions(old: &[Region], areas: &[AddrRange]) -> Vec<Region> {
    let mut out = Vec::with_capacity(old.len() + areas.len());
    let mut rest = old;
    for area in areas {
        let mut at = area.start;
        let skip = rest.iter().take_while(|r| r.range.end <= area.start).count();
        rest = &rest[skip..];
        for (r, kept) in rest.iter().map_while(|r| Some((r, r.range.intersect(area)?))) {
            if at < kept.start {
                out.push(Region::new(AddrRange::new(at, kept.start)));
            }
            out.push(if kept == r.range { r.clone() } else { r.resized(kept) });
            at = kept.end;
        }
        if at < area.end {
            out.push(Region::new(AddrRange::new(at, area.end)));
        }
    }
    out
}

/// How to split so that there are never too many regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitPlan {
    /// not at all
    None,
    /// every one, into this many parts
    All(u32),
    /// every n-th one, from this offset on, into two
    EveryNth {
        /// n
        nth: usize,
        /// index of the first
        offset: usize,
    },
}

impl SplitPlan {
    /// The plan for `count` regions of at most `max`, when there were `last_count` before the split
    /// an interval ago. `parts` are wanted, one more if splitting has found nothing new since.
    ///
    /// Above half of `max` every (max/(max-count))-th is split, from a rotating offset, as in Linux
    /// 7.3; before it, nothing was split then, and borders froze.
    #[must_use]
    pub fn new(count: usize, last_count: usize, max: usize, parts: u32, turn: usize) -> Self {
        if count == 0 || count >= max {
            return SplitPlan::None;
        }
        let room = max / count;
        let wanted = parts as usize + usize::from(count == last_count);
        match wanted.min(room) {
            0 | 1 => {
                let nth = (max / (max - count)).max(1);
                SplitPlan::EveryNth { nth, offset: turn % nth }
            }
            parts => SplitPlan::All(u32::try_from(parts).unwrap_or(2)),
        }
    }

    fn parts_of(self, index: usize) -> u32 {
        match self {
            SplitPlan::None => 1,
            SplitPlan::All(parts) => parts,
            SplitPlan::EveryNth { nth, offset } => 1 + u32::from(index % nth == offset),
        }
    }
}

/// Splits regions at random places, multiples of `unit`; the parts inherit what was known. Those for
/// which `skip` holds stay whole.
///
/// `first` is the position of `regions` within all that the plan was made for.
pub fn split_regions(
    regions: &mut Vec<Region>,
    plan: SplitPlan,
    first: usize,
    unit: u64,
    skip: impl Fn(&Region) -> bool,
    rng: &mut impl Rng,
) {
    if plan == SplitPlan::None {
        return;
    }
    let mut out = Vec::with_capacity(regions.len() * 2);
    for (i, r) in regions.drain(..).enumerate() {
        let parts = if skip(&r) { 1 } else { plan.parts_of(first + i) };
        split_one(r, parts, unit, rng, &mut out);
    }
    *regions = out;
}

/// Whether a region of `size` bytes is too small to be split.
fn is_whole(size: u64, unit: u64) -> bool {
    size <= 2 * unit
}

/// Each cut lies at one to nine tenths of what remains on the left, as in the kernel.
fn split_one(r: Region, parts: u32, unit: u64, rng: &mut impl Rng, out: &mut Vec<Region>) {
    let mut left = r;
    let mut cut_off = Vec::new();
    for _ in 1..parts {
        let AddrRange { start, .. } = left.range;
        let size = left.range.len();
        if is_whole(size, unit) {
            break;
        }
        let tenths = 1 + below(rng, 9);
        let cut =
            align_down(start.saturating_add(size / 10 * tenths + size % 10 * tenths / 10), unit);
        if cut <= start || cut >= left.range.end {
            continue;
        }
        let (l, right) = left.split_at(cut);
        cut_off.push(right);
        left = l;
    }
    out.push(left);
    out.extend(cut_off.into_iter().rev());
}

/// Drops the smallest of `regions` beyond `max`; returns their bytes.
pub(crate) fn leave_out<T>(regions: &mut Vec<T>, max: usize, len: impl Fn(&T) -> u64) -> u64 {
    let Some(excess) = regions.len().checked_sub(max).filter(|&n| n > 0) else { return 0 };
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_by_key(|&i| len(&regions[i]));
    let dropped: BTreeSet<usize> = order.into_iter().take(excess).collect();
    let bytes = dropped.iter().map(|&i| len(&regions[i])).sum();
    let mut at = 0;
    regions.retain(|_| {
        at += 1;
        !dropped.contains(&(at - 1))
    });
    bytes
}

/// A random number below `n`, by multiplication (Lemire): for small `n` the bias is below 2^-50.
pub(crate) fn below(rng: &mut impl Rng, n: u64) -> u64 {
    u64::try_from((u128::from(rng.next_u64()) * u128::from(n)) >> 64).unwrap_or(0)
}

/// A random page of `range`.
pub(crate) fn random_page(range: AddrRange, rng: &mut impl Rng) -> u64 {
    range.start + below(rng, (range.len() / PAGE_SIZE).max(1)) * PAGE_SIZE
}

/// The aligned window of `size` bytes that holds `page`, as far as it lies in `range`.
pub(crate) fn window_around(page: u64, range: AddrRange, size: u64) -> AddrRange {
    let start = align_down(page, size);
    AddrRange::new(start.max(range.start), start.saturating_add(size).min(range.end))
}

/// Pages of each reason as shares of 10,000.
pub(crate) fn unknown_bp(shares: &Shares) -> Pages<u32> {
    Pages(shares.unknown.map(to_bp))
}

pub(crate) fn to_bp(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 10_000.0).round() as u32
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
