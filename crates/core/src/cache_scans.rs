//! What sequential reads of files throw out of a page cache.
//!
//! A cache of one size is tried in miniature, as for [`CacheCurve`]. There, the page that an access evicts is known, and
//! whether it is read again later.

use std::collections::BTreeMap;

use crate::cache_curve::CacheCurve;
use crate::call::TargetId;
use crate::range::PAGE_SIZE;
use crate::two_lists::TwoLists;

/// A file was scanned if at least this share of the pages that it brought in follows the one before.
const MIN_ORDERED_SHARE: f64 = 0.9;
/// And if at least this share of them was read once only.
const MIN_ONCE_SHARE: f64 = 0.5;
/// Fewer sampled pages show no order.
const MIN_SAMPLED: u64 = 16;

/// A file that was read in sequence, mostly once, and its effect on the others. All figures are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheScan {
    /// the file
    pub target: TargetId,
    /// pages that its reads brought into the cache
    pub brought_in: u64,
    /// those of them that were not read again while they were in the cache
    pub read_once: u64,
    /// pages of other files that left the cache for pages of this file
    pub evicted: u64,
    /// those of them that were read again later, so that they had to come from the disk
    pub missed: u64,
}

/// Sampled pages, as in [`CacheScan`].
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    brought_in: u64,
    ordered: u64,
    read_once: u64,
    evicted: u64,
    missed: u64,
    /// the page that was brought in last
    last: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// its reads since a read brought it in; 0: it is not in the cache, or a write brought it in
    reads: u32,
    /// the file whose page evicted it last
    evicted_by: Option<TargetId>,
}

impl CacheCurve {
    /// The files that were read in sequence while the cache had this size in bytes and that evicted pages of others,
    /// those first that cost the others the most.
    #[must_use]
    pub fn scans(&self, bytes: u64) -> Vec<CacheScan> {
        let scale = self.sampled_one_in();
        let capacity = usize::try_from(bytes / PAGE_SIZE / scale).unwrap_or(usize::MAX);
        let mut cache = TwoLists::new(capacity, scale as f64);
        let mut states = vec![State::default(); self.pages.len()];
        let mut files: BTreeMap<TargetId, Counts> = BTreeMap::new();
        let mut before = None;
        for event in &self.events {
            let number = event.page as usize;
            let (Some(&(target, page)), Some(state)) =
                (self.pages.get(number), states.get_mut(number))
            else {
                continue;
            };
            // Consecutive reads of a page are reads of its parts.
            let is_same = before.replace(event.page) == Some(event.page);
            let counts = files.entry(target).or_default();
            if event.is_write {
                cache.write(event.page);
            } else if cache.read(event.page) {
                let is_again = !is_same && state.reads > 0;
                state.reads = state.reads.saturating_add(u32::from(is_again));
            } else {
                counts.brought_in += 1;
                counts.ordered +=
                    u64::from(counts.last.replace(page).is_some_and(|last| last < page));
                let evicted_by = state.evicted_by.take();
                state.reads = 1;
                if let Some(by) = evicted_by {
                    files.entry(by).or_default().missed += 1;
                }
            }
            let Some(evicted) = cache.take_evicted() else { continue };
            let of = self.pages.get(evicted as usize).map(|(of, _)| *of);
            let (Some(of), Some(state)) = (of, states.get_mut(evicted as usize)) else { continue };
            files.entry(of).or_default().read_once += u64::from(state.reads == 1);
            *state = State { reads: 0, evicted_by: (of != target).then_some(target) };
            if of != target {
                files.entry(target).or_default().evicted += 1;
            }
        }
        if !cache.is_full() {
            return Vec::new();
        }
        for (_, (of, _)) in states.iter().zip(&self.pages).filter(|(s, _)| s.reads == 1) {
            files.entry(*of).or_default().read_once += 1;
        }
        let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE).saturating_mul(scale);
        let mut scans: Vec<CacheScan> = files
            .into_iter()
            .filter(|(_, counts)| counts.evicted > 0 && counts.is_scan())
            .map(|(target, c)| CacheScan {
                target,
                brought_in: bytes(c.brought_in),
                read_once: bytes(c.read_once),
                evicted: bytes(c.evicted),
                missed: bytes(c.missed),
            })
            .collect();
        scans.sort_by_key(|scan| std::cmp::Reverse((scan.missed, scan.evicted, scan.brought_in)));
        scans
    }
}

impl Counts {
    fn is_scan(&self) -> bool {
        let share = |part: u64| part as f64 / self.brought_in.max(1) as f64;
        self.brought_in >= MIN_SAMPLED
            && share(self.ordered) >= MIN_ORDERED_SHARE
            && share(self.read_once) >= MIN_ONCE_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_trace::{CacheAccess, CacheAccessKind, CacheTrace};
    use crate::time::Nanos;

    const MIB: u64 = 1 << 20;
    const HOT: TargetId = TargetId(0);
    const SCANNED: TargetId = TargetId(1);
    const RANDOM: TargetId = TargetId(2);

    /// The curve of reads of these pages of files; all are sampled.
    fn curve(reads: &[(TargetId, u64)]) -> CacheCurve {
        curve_of(accesses(CacheAccessKind::Read, reads.iter().copied()).collect())
    }

    fn curve_of(accesses: Vec<CacheAccess>) -> CacheCurve {
        let trace = CacheTrace {
            until: Nanos(1_000_000_000),
            pages: vec![(HOT, accesses.len() as u64)],
            accesses,
            ..CacheTrace::default()
        };
        CacheCurve::new([trace].iter(), |_| true).unwrap()
    }

    fn accesses(
        kind: CacheAccessKind,
        pages: impl Iterator<Item = (TargetId, u64)>,
    ) -> impl Iterator<Item = CacheAccess> {
        pages.map(move |(target, page)| CacheAccess { target, page, kind, rarity: 15 })
    }

    fn in_sequence(target: TargetId, pages: u64) -> impl Iterator<Item = (TargetId, u64)> {
        (0..pages).map(move |page| (target, page))
    }

    /// In a cache of 1000 pages, a file of 400 is read once, then one of 2000, then the first one again.
    fn once_then_scan() -> Vec<(TargetId, u64)> {
        let files = [(HOT, 400), (SCANNED, 2000), (HOT, 400)];
        files.into_iter().flat_map(|(file, pages)| in_sequence(file, pages)).collect()
    }

    #[test]
    fn a_scan_throws_out_what_is_read_again() {
        let scans = curve(&once_then_scan()).scans(1000 * PAGE_SIZE);
        let pages = |n: u64| n * PAGE_SIZE;
        let expected = CacheScan {
            target: SCANNED,
            brought_in: pages(2000),
            read_once: pages(2000),
            evicted: pages(400),
            missed: pages(400),
        };
        assert_eq!(scans[0], expected);
        assert!(scans[1..].iter().all(|scan| scan.target == HOT && scan.missed == 0), "{scans:?}");
    }

    #[test]
    fn what_fits_throws_out_nothing() {
        assert!(curve(&once_then_scan()).scans(64 * MIB).is_empty());
    }

    #[test]
    fn active_pages_survive_and_random_reads_are_no_scan() {
        let random = (0..3000_u64).map(|i| (RANDOM, i * 7919 % 3001));
        let hot = || in_sequence(HOT, 300).chain(in_sequence(HOT, 300));
        let reads: Vec<_> =
            hot().chain(random).chain(in_sequence(SCANNED, 3000)).chain(hot()).collect();
        let scans = curve(&reads).scans(1000 * PAGE_SIZE);
        let of: Vec<_> = scans.iter().map(|scan| (scan.target, scan.missed)).collect();
        assert_eq!(of, [(SCANNED, 0)], "{scans:?}");
        assert!(scans[0].evicted > 0, "pages of the random reads, which are not read again");
    }

    #[test]
    fn reads_of_parts_of_a_page_are_one_read() {
        let parts = in_sequence(SCANNED, 2000).flat_map(|read| [read; 4]);
        let reads: Vec<_> = in_sequence(HOT, 400).chain(parts).collect();
        let scans = curve(&reads).scans(1000 * PAGE_SIZE);
        let [scan] = &scans[..] else { panic!("the first file has evicted nothing: {scans:?}") };
        assert_eq!(scan.target, SCANNED);
        assert_eq!((scan.brought_in, scan.read_once), (2000 * PAGE_SIZE, 2000 * PAGE_SIZE));
    }

    /// In a full cache, a file is read again and again. Other pages of it are written, and read once.
    #[test]
    fn pages_that_a_write_brought_in_were_not_read_once() {
        let written = || in_sequence(HOT, 500).skip(100);
        let again = (0..12).flat_map(|_| in_sequence(HOT, 100));
        let all = accesses(CacheAccessKind::Read, in_sequence(SCANNED, 1000).chain(again))
            .chain(accesses(CacheAccessKind::Written, written()))
            .chain(accesses(CacheAccessKind::Read, written()));
        let scans = curve_of(all.collect()).scans(1000 * PAGE_SIZE);
        assert!(scans.is_empty(), "{scans:?}");
    }
}
