//! The miss-ratio curve of a page cache: how often caches of different sizes would hold the page that is read.
//!
//! A sample of the pages behaves like all of them in a cache that is smaller by the same factor (SHARDS,
//! Waldspurger et al., FAST 2015). So each size is tried in miniature, on the recorded accesses to the sampled
//! pages. The misses are counted, and divided by all reads, because the hottest pages are rarely in a sample, and
//! their reads are hits.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::cache_trace::{CacheAccessKind, CacheTrace};
use crate::call::TargetId;
use crate::range::PAGE_SIZE;
use crate::two_lists::TwoLists;

/// Groups of sampled pages, whose differences show the error of sampling.
const SAMPLE_GROUPS: usize = 8;
/// Student's t for a 95 % interval with `SAMPLE_GROUPS` - 1 degrees of freedom.
const T95: f64 = 2.365;
/// A cache in miniature has at least so many pages in each group.
const FEWEST_PAGES: usize = 12;
/// Minimum number of reads of sampled pages for a curve.
const FEWEST_READS: usize = 1000;
/// Maximum share of missing accesses with which there is a curve.
const MAX_MISSING_SHARE: f64 = 0.01;

/// The reason why a record gives no curve.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCurve {
    /// no trace
    #[error(
        "the record has no sampled accesses to files: record files with --reuse, or use isotherm need with --file or --dir"
    )]
    NoTrace,
    /// too few reads
    #[error(
        "the record is too short: it has {0} reads of sampled pages, and {FEWEST_READS} are required in its second half; \
         record for longer"
    )]
    TooFew(usize),
    /// lost accesses
    #[error(
        "{0:.1} % of the accesses to sampled pages came faster than they could be recorded: record fewer files"
    )]
    Missing(f64),
}

/// The misses of a cache of one size, in the second half of the record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CachePoint {
    /// size of the cache in bytes
    pub bytes: u64,
    /// share of the reads that find their page
    pub hits: f64,
    /// lower end of its 95 % interval, as far as sampling determines it
    pub low: f64,
    /// Upper end. It includes first reads of pages that a cache of this size may have held since before the record.
    pub high: f64,
    /// share of such first reads, which count as misses
    pub unknown: f64,
    /// bytes read from the disk per second
    pub disk: f64,
}

/// An access to a sampled page, by its dense number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledAccess {
    pub page: u32,
    pub is_write: bool,
}

/// The sampled accesses of a record, as dense numbers of pages.
#[derive(Debug, Clone)]
pub struct CacheCurve {
    /// binary logarithm of the pages that a sampled page stands for
    sampling: u8,
    pub(crate) events: Vec<SampledAccess>,
    /// the file of each page, and the page in it
    pub(crate) pages: Vec<(TargetId, u64)>,
    /// group of each page
    groups: Vec<u8>,
    /// number of events before the second half
    begin: usize,
    /// all reads of the second half, sampled or not
    reads: f64,
    /// length of the second half
    time: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct Misses {
    all: u64,
    /// first reads, while nothing was evicted
    unknown: u64,
}

impl CacheCurve {
    /// The curve of these traces, in order; of the files that are `wanted`.
    ///
    /// # Errors
    /// If there are too few accesses.
    pub fn new<'a>(
        traces: impl Iterator<Item = &'a CacheTrace> + Clone,
        wanted: impl Fn(TargetId) -> bool,
    ) -> Result<Self, NoCurve> {
        let sampling = traces.clone().map(|t| t.sampling).max().ok_or(NoCurve::NoTrace)?;
        // The sums may be those of a damaged record.
        let missing = traces.clone().map(|t| t.missing).fold(0, u64::saturating_add);
        let found: usize = traces.clone().map(|t| t.accesses.len()).sum();
        let missing = missing as f64 / (missing as f64 + found as f64).max(1.0);
        if missing > MAX_MISSING_SHARE {
            return Err(NoCurve::Missing(missing * 100.0));
        }
        let reads = |t: &CacheTrace| -> u64 {
            let pages = t.pages.iter().filter(|(id, _)| wanted(*id));
            pages.map(|&(_, n)| n).fold(0, u64::saturating_add)
        };
        let all = traces.clone().map(reads).fold(0, u64::saturating_add);
        let mut curve = CacheCurve {
            sampling,
            events: Vec::new(),
            pages: Vec::new(),
            groups: Vec::new(),
            begin: 0,
            reads: 0.0,
            time: Duration::ZERO,
        };
        let (mut pages, mut before) = (HashMap::new(), 0u64);
        let half = all as f64 / 2.0;
        for trace in traces {
            // The part of the trace before the second half.
            let (own, first) = (reads(trace), curve.events.len());
            let part = ((half - before as f64) / (own as f64).max(1.0)).clamp(0.0, 1.0);
            before = before.saturating_add(own);
            let sampled = trace.accesses.iter().filter(|a| a.rarity >= sampling);
            for access in sampled.filter(|a| wanted(a.target)) {
                let next = pages.len() as u32;
                let page = *pages.entry((access.target, access.page)).or_insert(next);
                if page == next {
                    curve.pages.push((access.target, access.page));
                    curve.groups.push(group_of(access.target, access.page));
                }
                let is_write = access.kind == CacheAccessKind::Written;
                curve.events.push(SampledAccess { page, is_write });
            }
            if part > 0.0 {
                let sampled = (curve.events.len() - first) as f64;
                curve.begin = first + (sampled * part).round() as usize;
            }
            curve.reads += own as f64 * (1.0 - part);
            curve.time += trace.until.since(trace.since).mul_f64(1.0 - part);
        }
        let counted = curve.events.get(curve.begin..).unwrap_or_default();
        let counted = counted.iter().filter(|e| !e.is_write).count();
        if counted < FEWEST_READS { Err(NoCurve::TooFew(counted)) } else { Ok(curve) }
    }

    /// One page in so many is sampled.
    #[must_use]
    pub fn sampled_one_in(&self) -> u64 {
        1 << self.sampling
    }

    /// Memory of all pages that were accessed, in bytes: a larger cache makes no difference.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        (self.groups.len() as u64 * PAGE_SIZE) << self.sampling
    }

    /// Length of the second half.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Pages read per second in the second half.
    #[must_use]
    pub fn reads_per_second(&self) -> f64 {
        self.reads / self.time.as_secs_f64().max(1e-9)
    }

    /// The smallest size in bytes for which the error of sampling is known.
    #[must_use]
    pub fn smallest(&self) -> u64 {
        ((FEWEST_PAGES * SAMPLE_GROUPS) as u64 * PAGE_SIZE) << self.sampling
    }

    /// The point at a size. Below [`Self::smallest`], the interval is that of all sizes: from 0 to 1.
    #[must_use]
    pub fn at(&self, bytes: u64) -> CachePoint {
        let capacity = usize::try_from((bytes / PAGE_SIZE) >> self.sampling).unwrap_or(usize::MAX);
        let scale = (1_u64 << self.sampling) as f64;
        let expected = self.reads / scale;
        let share = |misses: u64| misses as f64 / expected.max(1.0);
        let all = self.misses(capacity, scale, |_| true);
        let unknown = share(all.unknown).min(1.0);
        let hits = (1.0 - share(all.all)).clamp(0.0, 1.0);
        let error = if capacity < FEWEST_PAGES * SAMPLE_GROUPS {
            1.0
        } else {
            let of_group = |group: u8| {
                let of = |page: u32| self.groups.get(page as usize) == Some(&group);
                let misses =
                    self.misses(capacity / SAMPLE_GROUPS, scale * SAMPLE_GROUPS as f64, of);
                share(misses.all) * SAMPLE_GROUPS as f64
            };
            let groups: Vec<f64> = (0..SAMPLE_GROUPS as u8).map(of_group).collect();
            T95 * standard_error(&groups)
        };
        CachePoint {
            bytes,
            hits,
            low: (hits - error).max(0.0),
            high: (hits + error + unknown).min(1.0),
            unknown,
            disk: (1.0 - hits) * self.reads_per_second() * PAGE_SIZE as f64,
        }
    }

    /// Counts the misses of the second half in a cache in miniature, which only the pages `of` a group use.
    fn misses(&self, capacity: usize, scale: f64, of: impl Fn(u32) -> bool) -> Misses {
        let mut cache = TwoLists::new(capacity, scale);
        let mut seen = HashSet::new();
        let mut misses = Misses::default();
        for (i, event) in self.events.iter().enumerate().filter(|(_, e)| of(e.page)) {
            let is_new = !cache.is_full() && seen.insert(event.page);
            if event.is_write {
                cache.write(event.page);
            } else if !cache.read(event.page) && i >= self.begin {
                misses.all += 1;
                misses.unknown += u64::from(is_new);
            }
        }
        misses
    }
}

/// A group that depends on nothing that heat depends on.
fn group_of(target: TargetId, page: u64) -> u8 {
    let mixed = (page ^ (u64::from(target.0) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 61) as u8
}

fn standard_error(values: &[f64]) -> f64 {
    let n = values.len().max(2) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_trace::CacheAccess;
    use crate::time::Nanos;

    const FILE: TargetId = TargetId(0);

    /// Numbers that look random, below `n`.
    fn draws(n: u64) -> impl Iterator<Item = u64> {
        let mut x = 0x1234_5678_9abc_def1_u64;
        std::iter::repeat_with(move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            ((u128::from(x) * u128::from(n)) >> 64) as u64
        })
    }

    /// Traces of 1 s of these pages, one page in 2^`sampling` of which is recorded.
    fn traces(pages: &[u64], sampling: u8) -> Vec<CacheTrace> {
        let parts = pages.chunks(pages.len().div_ceil(20)).zip(0..);
        let trace = |(part, second): (&[u64], u64)| {
            let mixed = |page: u64| page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let rarity = |page: u64| mixed(page).trailing_zeros().min(15) as u8;
            let access = |&page| CacheAccess {
                target: FILE,
                page,
                kind: CacheAccessKind::Read,
                rarity: rarity(page),
            };
            CacheTrace {
                since: Nanos(second * 1_000_000_000),
                until: Nanos((second + 1) * 1_000_000_000),
                sampling,
                pages: vec![(FILE, part.len() as u64)],
                missing: 0,
                accesses: part.iter().map(access).filter(|a| a.rarity >= sampling).collect(),
            }
        };
        parts.map(trace).collect()
    }

    fn curve(pages: &[u64], sampling: u8) -> CacheCurve {
        CacheCurve::new(traces(pages, sampling).iter(), |_| true).unwrap()
    }

    #[test]
    fn a_sample_predicts_what_all_accesses_show() {
        // Half of the reads are of a tenth of the pages.
        let pages: Vec<u64> = draws(2)
            .zip(draws(60_000))
            .map(|(part, page)| if part == 0 { page / 10 } else { page })
            .take(800_000)
            .collect();
        let (all, few) = (curve(&pages, 0), curve(&pages, 4));
        assert_eq!((all.sampled_one_in(), few.sampled_one_in()), (1, 16));
        let rate = few.reads_per_second();
        assert!((rate - 40_000.0).abs() < 1.0, "{rate}");
        for mib in [32, 64, 128, 192] {
            let (real, point) = (all.at(mib << 20).hits, few.at(mib << 20));
            assert!((real - point.hits).abs() < 0.03, "{mib} MiB: {real} {point:?}");
            assert!(point.low <= real && real <= point.high, "{mib} MiB: {real} {point:?}");
            assert!(point.high - point.low < 0.15, "{mib} MiB: {point:?}");
        }
    }

    #[test]
    fn first_reads_are_unknown_until_the_cache_is_full() {
        let pages: Vec<u64> = (0..40_000).collect();
        let curve = curve(&pages, 0);
        let (small, large) = (curve.at(20 << 20), curve.at(400 << 20));
        assert_eq!((small.hits, small.unknown), (0.0, 0.0));
        assert_eq!((large.hits, large.unknown, large.high), (0.0, 1.0, 1.0));
        assert_eq!(curve.footprint(), 40_000 * PAGE_SIZE);
    }

    #[test]
    fn a_short_record_gives_no_curve() {
        let short = traces(&(0..500).collect::<Vec<_>>(), 0);
        let refused = |traces: &[CacheTrace]| CacheCurve::new(traces.iter(), |_| true).unwrap_err();
        assert_eq!(refused(&[]), NoCurve::NoTrace);
        assert!(matches!(refused(&short), NoCurve::TooFew(250)));
        let mut lossy = traces(&(0..5000).collect::<Vec<_>>(), 0);
        lossy[3].missing = 1000;
        assert!(matches!(refused(&lossy), NoCurve::Missing(p) if (16.0..17.0).contains(&p)));
        let of_other = CacheCurve::new(lossy[..1].iter(), |id| id != FILE);
        assert_eq!(of_other.unwrap_err(), NoCurve::TooFew(0));
    }

    #[test]
    fn the_second_half_may_begin_within_a_trace() {
        let pages: Vec<u64> = draws(5000).take(100_000).collect();
        let mut all = traces(&pages, 0);
        let second = CacheCurve::new(all.iter(), |_| true).unwrap();
        // One trace instead of the last fifteen.
        let mut last = all.split_off(5);
        let end = last.last().unwrap().until;
        let accesses = last.iter().flat_map(|t| t.accesses.clone()).collect();
        let pages = vec![(FILE, last.iter().map(|t| t.pages[0].1).sum())];
        all.push(CacheTrace { until: end, pages, accesses, ..last.swap_remove(0) });
        let split = CacheCurve::new(all.iter(), |_| true).unwrap();
        let (split_at, second_at) = (split.at(8 << 20), second.at(8 << 20));
        assert!((split_at.hits - second_at.hits).abs() < 1e-9, "{split_at:?} {second_at:?}");
        assert!((split.time().as_secs_f64() - 10.0).abs() < 1e-6, "{:?}", split.time());
    }

    #[test]
    fn the_coarsest_sampling_counts() {
        let pages: Vec<u64> = draws(20_000).take(200_000).collect();
        let mut mixed = traces(&pages, 0);
        let coarse = traces(&pages, 2);
        mixed[10..].clone_from_slice(&coarse[10..]);
        let curve = CacheCurve::new(mixed.iter(), |_| true).unwrap();
        let same = CacheCurve::new(coarse.iter(), |_| true).unwrap();
        assert_eq!(curve.at(32 << 20), same.at(32 << 20));
    }
}
