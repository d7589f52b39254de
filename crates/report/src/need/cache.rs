//! The hit ratio of the page cache of files, now and at other sizes.

use isotherm_core::{CacheCurve, CachePoint, CacheScan, NoCurve, TargetId};
use serde::Serialize;

const MIB: u64 = 1 << 20;
/// A cache is large enough if its hit ratio is at most so much below that of a cache for all pages.
const NEAR_BEST: f64 = 0.01;
/// With more first reads than this share it is not known how much a cache for all pages would hold.
const MAX_FIRST_READ_SHARE: f64 = 0.02;
/// The smallest size of the curve, as a part of all pages.
const SMALLEST_PART: u64 = 128;

/// The page cache that the files of a record need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheNeed {
    /// files that were read or written
    pub files: u64,
    /// one page in so many was sampled
    pub sampled_one_in: u64,
    /// length of the second half of the record, over which reads and misses are counted
    pub counted_ms: f64,
    /// pages read per second in it
    pub reads_per_second: f64,
    /// memory of all pages that were accessed
    pub accessed_bytes: u64,
    /// at the size that the files have in the cache at the end of the record
    pub now: Option<CacheRow>,
    /// by size, the smallest first
    pub curve: Vec<CacheRow>,
    /// the smallest size of the curve that is large enough
    pub verdict: Option<CacheRow>,
    /// why there is no verdict
    pub refused: Option<String>,
    /// files that were read in sequence, mostly once, in a cache of the size of `now`, and evicted others; those first
    /// that cost the others the most. None if that size is too small for the sample
    pub scans: Vec<ScanRow>,
}

/// A file that was read in sequence, and its effect on the other files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScanRow {
    /// number of the file in the record
    pub target: u32,
    /// its name
    pub name: String,
    /// pages that its reads brought into the cache
    pub brought_in_bytes: u64,
    /// those of them that were read once
    pub read_once_bytes: u64,
    /// pages of other files that left the cache for them
    pub evicted_bytes: u64,
    /// those of them that were read again later, from the disk
    pub missed_bytes: u64,
}

/// The hit ratio of a page cache of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CacheRow {
    /// its size
    pub cache_bytes: u64,
    /// reads that find their page, in percent
    pub hit_percent: f64,
    /// lower end of the 95 % interval
    pub hit_low_percent: f64,
    /// its upper end
    pub hit_high_percent: f64,
    /// reads of pages that the cache may have held since before the record, in percent: they count as misses
    pub unknown_percent: f64,
    /// bytes read from the disk per second
    pub disk_bytes_per_second: f64,
}

impl From<CachePoint> for CacheRow {
    fn from(p: CachePoint) -> Self {
        CacheRow {
            cache_bytes: p.bytes,
            hit_percent: p.hits * 100.0,
            hit_low_percent: p.low * 100.0,
            hit_high_percent: p.high * 100.0,
            unknown_percent: p.unknown * 100.0,
            disk_bytes_per_second: p.disk,
        }
    }
}

impl CacheNeed {
    /// The figures of a curve, with rows for the sizes `asked`; `resident`: bytes of the files in the cache.
    pub(super) fn new(
        curve: Result<CacheCurve, NoCurve>,
        files: u64,
        resident: u64,
        asked: &[u64],
        name: impl Fn(TargetId) -> String,
    ) -> Self {
        let curve = match curve {
            Ok(curve) => curve,
            Err(why) => return CacheNeed::refused(files, why.to_string()),
        };
        let best = curve.at(curve.footprint());
        let sizes = sizes(curve.smallest(), curve.footprint(), asked);
        let mut rows: Vec<CacheRow> = sizes.map(|bytes| curve.at(bytes).into()).collect();
        if rows.last().is_none_or(|row| row.cache_bytes < best.bytes) {
            rows.push(best.into());
        }
        let goal = (best.hits - NEAR_BEST) * 100.0;
        let found = rows.iter().find(|row| row.hit_percent >= goal).copied();
        let scan = |s: CacheScan| ScanRow {
            target: s.target.0,
            name: name(s.target),
            brought_in_bytes: s.brought_in,
            read_once_bytes: s.read_once,
            evicted_bytes: s.evicted,
            missed_bytes: s.missed,
        };
        // In a smaller cache, they would be a matter of chance.
        let is_large = resident >= curve.smallest();
        let scans = if is_large { curve.scans(resident) } else { Vec::new() };
        let is_known = best.unknown <= MAX_FIRST_READ_SHARE;
        CacheNeed {
            files,
            sampled_one_in: curve.sampled_one_in(),
            counted_ms: curve.time().as_secs_f64() * 1e3,
            reads_per_second: curve.reads_per_second(),
            accessed_bytes: curve.footprint(),
            now: (resident > 0).then(|| curve.at(resident).into()),
            verdict: found.filter(|_| is_known),
            refused: (!is_known).then(|| too_short(&best)),
            scans: scans.into_iter().map(scan).collect(),
            curve: rows,
        }
    }

    fn refused(files: u64, why: String) -> Self {
        CacheNeed {
            files,
            sampled_one_in: 0,
            counted_ms: 0.0,
            reads_per_second: 0.0,
            accessed_bytes: 0,
            now: None,
            curve: Vec::new(),
            verdict: None,
            refused: Some(why),
            scans: Vec::new(),
        }
    }
}

fn too_short(best: &CachePoint) -> String {
    format!(
        "the record is too short: {:.1} % of the reads in its second half are the first ones of their pages, so it \
         is not known whether a large cache would hold them; record for longer",
        best.unknown * 100.0
    )
}

/// Sizes of 1 and 1.5 MiB times powers of two, up to the size of all pages, and the sizes asked for.
fn sizes(smallest: u64, all: u64, asked: &[u64]) -> impl Iterator<Item = u64> {
    let least = smallest.max(all / SMALLEST_PART);
    let usual = (0..40).flat_map(|i| [MIB << i, (MIB << i) / 2 * 3]);
    let usual = usual.filter(|size| (least..=all).contains(size));
    let all: std::collections::BTreeSet<u64> = usual.chain(asked.iter().copied()).collect();
    all.into_iter()
}
