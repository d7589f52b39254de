//! Regions of adjacent pages that are presumed equally hot, and the rules that maintain them.
//!
//! The rules and constants are the kernel's (`mm/damon/core.c`), under the same names; the kernel's test
//! vectors are the tests below. The rules work on plain numbers: `accesses_bp` is the kernel's `nr_accesses`
//! on a scale that does not depend on the intervals (its maximum is 10,000).

use std::collections::BTreeSet;
use std::time::Duration;

use rand_core::Rng;

use crate::ops::Seen;
use crate::range::{AddrRange, PAGE_SIZE, align_down, align_up};
use crate::time::Nanos;
use crate::unknown::{Unknown, UnknownPages};

/// A window whose accessed bits have been cleared, to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClearedWindow {
    pub range: AddrRange,
    pub cleared_at: Nanos,
    /// The clear found accessed pages, and therefore cost a TLB shootdown.
    pub paid: bool,
    /// Number of sampling intervals since the clear.
    pub reads: u32,
}

/// Counts of the looks at a region in one aggregation interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    /// answered looks
    pub looks: u32,
    /// pages that were looked at
    pub pages: u64,
    /// resident pages whose accesses are visible
    pub present: u64,
    /// of these, pages accessed in a sampling interval
    pub young: u64,
    /// resident pages whose accesses are invisible, by reason
    pub unknown: [u64; Unknown::ALL.len()],
    /// time from clear to read per sampling interval, summed over looks
    pub exposure: Duration,
    /// A page was accessed too late to count: the region is not cold.
    pub later: bool,
}

impl Tally {
    /// Adds one look at a window that was cleared `intervals` sampling intervals ago, and was untouched until
    /// the last of them. A dropped look ([`Seen::pages`] zero) changes nothing.
    ///
    /// The look counts once for each interval, so that memory that is touched from time to time does not
    /// appear to be touched all the time. Example: 16 pages accessed in the last of 4 intervals count as 16
    /// of 64.
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

    /// Share of accessed pages, of 10,000, among the pages that are absent or whose accesses are visible.
    ///
    /// Absent pages count as not accessed, as in the kernel, so that borders between resident and absent
    /// memory are found. Unknown pages are excluded.
    #[must_use]
    pub fn accesses_bp(&self) -> u32 {
        let pages = self.pages.saturating_sub(self.unknown.iter().sum());
        // Any access gives a value above zero.
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

/// A [`Tally`] as fractions of all pages, so that regions of different sizes can be averaged.
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

    /// If no look was answered, all memory counts as unseen.
    fn or_unseen(mut self) -> Shares {
        if self.looks == 0 {
            self.unknown[Unknown::Unseen.index()] = 1.0;
        }
        self
    }
}

/// Adjacent pages that are presumed equally hot.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    /// address range
    pub range: AddrRange,
    /// share of pages found accessed per sampling interval, of 10,000, in the last complete aggregation
    /// interval
    pub accesses_bp: u32,
    /// the same share in the aggregation interval before that
    pub last_accesses_bp: u32,
    /// number of aggregation intervals for which the region has kept its heat
    pub age: u32,
    /// counts of the current interval
    pub tally: Tally,
    pub(crate) shares: Shares,
    pub(crate) window: Option<ClearedWindow>,
    /// first sampling interval, counted from the monitor's start, in which a window may be cleared again
    pub(crate) next_clear: u64,
    /// Whether its heat is settled, so that few looks are sufficient. Initially true: all memory looks
    /// accessed then, and one interval shows where more looks are needed.
    pub(crate) settled: bool,
    /// whether it was touched a little after it was untouched
    pub(crate) sudden: bool,
    /// Number of consecutive intervals with many accesses. Unlike the age, it continues while heat varies, as
    /// in a program that changes between data sets.
    pub(crate) much: u32,
}

impl Region {
    /// A region without any evidence.
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

    /// A region with the same state and another range: a part of this one.
    #[must_use]
    pub fn resized(&self, range: AddrRange) -> Self {
        Region { range, window: None, ..self.clone() }
    }

    /// Whether a window should be chosen and cleared in sampling interval `tick`.
    pub(crate) fn wants_window(&self, tick: u64) -> bool {
        self.window.is_none() && self.next_clear <= tick
    }

    /// Watches a window that was cleared in sampling interval `tick`, unless the look was dropped. If the
    /// clear had a cost and the region is settled, the next clear is at least `clear_every` intervals later.
    pub(crate) fn watch(&mut self, range: AddrRange, cleared: &Seen, tick: u64, clear_every: u32) {
        let paid = cleared.young > 0;
        let window = ClearedWindow { range, cleared_at: cleared.cleared_at, paid, reads: 0 };
        self.window = (cleared.pages > 0).then_some(window);
        if paid {
            self.next_clear = tick + u64::from(self.clear_every(clear_every));
        }
    }

    /// Ends the current interval: its counts become `accesses_bp`. If no look gave information, the old value
    /// stays.
    pub(crate) fn conclude(&mut self) {
        self.shares = self.tally.shares();
        if self.is_seen() {
            self.accesses_bp = self.tally.accesses_bp();
        }
    }

    /// Whether a split would find nothing, or not now. Because looks are at random places, they show when
    /// this changes.
    ///
    /// All looks of the last interval agreed: on no access, or, if there were many looks, on accesses to
    /// every page. Or untouched memory was touched a little, perhaps in one burst.
    pub(crate) fn stays_whole(&self) -> bool {
        let all = self.accesses_bp >= UNIFORM_BP
            && (self.settled || self.shares.looks >= MIN_CONSISTENT_LOOKS);
        self.accesses_bp == 0 || all || self.sudden
    }

    /// Whether any look found memory other than memory with invisible accesses.
    fn is_seen(&self) -> bool {
        self.shares.looks > 0 && self.shares.unknown.iter().sum::<f64>() < 1.0 - 1e-9
    }

    /// Starts the next interval. A region whose heat was not observed restarts its age.
    ///
    /// The heat is settled if almost no page was accessed, or enough pages to be certainly hot, for several
    /// intervals. The agreement of a few looks may be chance if a border crosses the region. Example: if a quarter
    /// is cold, 3 looks meet only hot windows in 4 of 10 cases, and 20 looks in 3 of 1000. Many looks serve to
    /// find borders: for a region too small to be split (`unit` is the granularity of cuts), a few looks are
    /// sufficient.
    pub(crate) fn restart(&mut self, unit: u64) {
        if !self.is_seen() {
            self.age = 0;
        }
        let little = self.accesses_bp <= NOT_HOT_BP;
        self.sudden = little && self.last_accesses_bp == 0;
        self.much = if self.accesses_bp >= HOT_BP { self.much.saturating_add(1) } else { 0 };
        let much = self.much > SETTLED_AFTER;
        let small = is_whole(self.range.len(), unit);
        self.settled = self.is_seen() && (little || much || small);
        self.last_accesses_bp = self.accesses_bp;
        self.tally = Tally::default();
    }

    /// Discards the counts of the current interval, and keeps earlier results.
    pub(crate) fn begin_anew(&mut self) {
        self.tally = Tally::default();
        self.window = None;
        self.settled = false;
    }

    /// Minimum number of sampling intervals between two clears.
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

/// Increments the age of regions that kept their heat, and resets the age of the others. Heat changes by a
/// difference above `threshold`, or by a change from or to no access at all.
pub fn age_regions(regions: &mut [Region], threshold: u32) {
    for r in regions {
        let changed = r.accesses_bp.abs_diff(r.last_accesses_bp) > threshold
            || (r.accesses_bp == 0) != (r.last_accesses_bp == 0);
        r.age = if changed { 0 } else { r.age.saturating_add(1) };
    }
}

/// Extends `left` to cover `right`, which must follow it directly. Figures become means weighted by size,
/// rounded down as in the kernel. Within an interval, the looks at the larger region represent both.
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

/// Certainly not hot: 10 Hz are 1800 at 20 ms.
const NOT_HOT_BP: u32 = 1_500;
/// Certainly hot: 35 Hz at 20 ms.
const HOT_BP: u32 = 5_000;
const SETTLED_AFTER: u32 = 3;
/// Number of looks whose agreement is not chance.
const MIN_CONSISTENT_LOOKS: u32 = 10;

/// Pages are missed occasionally by chance, or because another party has cleared them.
const UNIFORM_BP: u32 = 9_900;

/// A threshold that treats all regions as equal.
pub(crate) const ANY_DIFFERENCE: u32 = 10_000;

/// Merges adjacent regions that differ by at most `threshold`, and together have at most `limit` bytes.
/// Regions with visible and invisible accesses stay separate, unless `threshold` ignores all differences.
pub fn merge_regions(regions: &mut Vec<Region>, threshold: u32, limit: u64) {
    // `dedup_by` passes the later element first, and drops it on `true`.
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

/// Maximum size of a region in bytes so that `total` bytes give at least `min_regions`, aligned up to `unit`.
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

/// `range` in `parts` pieces of equal size, cut at multiples of `unit`; the last piece includes the
/// remainder. One piece if pieces would be empty.
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

/// Regions that cover exactly `areas` (sorted, disjoint). Memory that stays covered keeps its state; new
/// memory starts without evidence.
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

/// How to split regions without exceeding their maximum number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitPlan {
    /// no split
    None,
    /// split every region into this many parts
    All(u32),
    /// split every n-th region, from this offset on, into two
    EveryNth {
        /// n
        nth: usize,
        /// index of the first
        offset: usize,
    },
}

impl SplitPlan {
    /// The plan for `count` regions of at most `max`; `last_count` regions existed before the split one
    /// interval ago. Each region is split into `parts`, and into one more if splitting has found nothing new
    /// since.
    ///
    /// Above half of `max`, every (max/(max-count))-th region is split, from a rotating offset, as in Linux
    /// 7.3. Earlier kernels then split nothing, and borders did not move.
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

/// Splits regions at random multiples of `unit`; the parts inherit the state. Regions for which `skip` holds
/// are not split.
///
/// `first` is the index of `regions[0]` among all regions of the plan.
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

/// Each cut leaves 10 % to 90 % of the remaining region on its left, as in the kernel.
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

/// Drops the smallest `regions` beyond `max`; returns their total length in bytes.
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

/// The aligned window of `size` bytes that contains `page`, cut to `range`.
pub(crate) fn window_around(page: u64, range: AddrRange, size: u64) -> AddrRange {
    let start = align_down(page, size);
    AddrRange::new(start.max(range.start), start.saturating_add(size).min(range.end))
}

/// Shares of unknown pages by reason, of 10,000.
pub(crate) fn unknown_bp(shares: &Shares) -> UnknownPages<u32> {
    UnknownPages(shares.unknown.map(to_bp))
}

pub(crate) fn to_bp(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 10_000.0).round() as u32
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
