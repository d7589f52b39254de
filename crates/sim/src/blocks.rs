//! Accuracy of a snapshot as a map of rates, by blocks of 2 MiB, independent of its regions.
//!
//! The score compares two mean rates of the pages of a block. The reported one is a region's rate times its
//! touched share, spread over its pages. The other is the true one. A huge page has one accessed bit. Its rate is
//! the rate at which any part of it is touched, and is assigned to each of its pages.

use isotherm_core::{
    AddrRange, BLOCK_SIZE, Nanos, PAGE_SIZE, RegionView, Snapshot, TargetId, Thresholds,
};

use crate::ground_truth::GroundTruth;
use crate::kind::{DECISION_FACTOR, PatternShare, pieces};
use crate::score::{MIN_SCORED_HZ, Score, regions};

/// Rates above this are limited to it, in Hz.
const MAX_HZ: f64 = 1000.0;
/// Minimum rate of warm blocks: one touch in the 5 s after which memory is cold.
const WARM_HZ: f64 = 0.2;

/// The scores of a snapshot by blocks of 2 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BlockScores {
    /// Mean of the absolute binary logarithm of reported over true rate, weighted by bytes. Both rates are
    /// limited to [`MIN_SCORED_HZ`] and 1000 Hz. `None` if there are no blocks.
    pub log2_error: Option<f64>,
    /// correlation of the logarithms of both rates; `None` if either is the same everywhere
    pub correlation: Option<f64>,
    /// blocks with a mean rate of at least 10 Hz
    pub hot: Score,
    /// blocks with a mean rate below that and of at least 0.2 Hz
    pub warm: Score,
    /// Number of regions that are touched or reported as touched, and the number of these whose 95 % interval
    /// contains the true rate of their touched pages.
    pub intervals: (usize, usize),
}

/// The scores of `snapshot` for `target` and the memory of `truth`. `None` if the truth covers another time.
#[must_use]
pub(crate) fn block_scores(
    truth: &GroundTruth,
    snapshot: &Snapshot,
    target: TargetId,
) -> Option<BlockScores> {
    let pieces = pieces(truth, snapshot.start, snapshot.end)?;
    let huge = truth.huge_pages();
    let mut intervals = (0, 0);
    for region in regions(snapshot, target) {
        if let Some(holds) = holds(truth, &pieces, &huge, region).filter(|_| seen(region) > 0.0) {
            intervals.0 += 1;
            intervals.1 += usize::from(holds);
        }
    }
    Some(BlockScores { intervals, ..Map::new(truth, &pieces, &huge, snapshot, target).scores() })
}

/// The scores of `snapshot` for hot and warm blocks between two other times. `None` if the truth does not
/// cover these.
pub(crate) fn heat_between(
    truth: &GroundTruth,
    snapshot: &Snapshot,
    target: TargetId,
    (from, to): (Nanos, Nanos),
) -> Option<[Score; 2]> {
    let pieces = pieces(truth, from, to)?;
    let scores = Map::new(truth, &pieces, &truth.huge_pages(), snapshot, target).scores();
    Some([scores.hot, scores.warm])
}

/// The share of a region whose accesses can be observed, from 0 to 1.
fn seen(region: &RegionView) -> f64 {
    (f64::from(region.resident_bp) - region.unknown_bp.total() as f64).max(0.0) / 1e4
}

/// Whether the interval of a region contains the true rate of its touched pages. `None` if no page is touched
/// or reported as touched, or if the truth does not cover the whole region.
fn holds(
    truth: &GroundTruth,
    pieces: &[Vec<PatternShare>],
    huge: &[AddrRange],
    region: &RegionView,
) -> Option<bool> {
    let range = region.range;
    let stretches = truth.stretches_in(range).map(|i| truth.stretches[i].range());
    let known: u64 = stretches.filter_map(|r| r.intersect(&range)).map(|r| r.len()).sum();
    let (mut all, mut at) = (Sum::default(), range.start);
    for h in huge.iter().filter_map(|h| h.intersect(&range)) {
        all.join(touched(truth, pieces, AddrRange::new(at, h.start)));
        for bit in blocks(h) {
            let touches = touched(truth, pieces, bit).touches;
            let bytes = bit.intersect(&h).filter(|_| touches > 0.0).map_or(0, |part| part.len());
            all.add(bytes as f64, touches / PAGE_SIZE as f64);
        }
        at = h.end;
    }
    all.join(touched(truth, pieces, AddrRange::new(at, range.end)));
    let hz = all.hz();
    let counts = known == range.len() && (hz > 0.0 || region.rate.hz > 0.0);
    let inside = f64::from(region.rate.low) <= hz && hz <= f64::from(region.rate.high);
    counts.then_some(inside)
}

/// The pages of `range` that may be touched: only these have a rate.
fn touched(truth: &GroundTruth, pieces: &[Vec<PatternShare>], range: AddrRange) -> Sum {
    let mut sum = Sum::default();
    for i in truth.stretches_in(range) {
        let bytes = (truth.stretches[i].pages_in(range) * PAGE_SIZE) as f64;
        pieces[i].iter().filter(|p| p.hz > 0.0).for_each(|p| sum.add(bytes, p.hz));
    }
    sum
}

/// The blocks that overlap `range`.
fn blocks(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    numbers(range).map(|n| AddrRange::new(n * BLOCK_SIZE, (n + 1) * BLOCK_SIZE))
}

/// The numbers of these blocks.
fn numbers(range: AddrRange) -> std::ops::Range<u64> {
    range.start / BLOCK_SIZE..range.end.div_ceil(BLOCK_SIZE)
}

/// Bytes, and the sum of rate times bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    bytes: f64,
    touches: f64,
}

impl Sum {
    fn add(&mut self, bytes: f64, hz: f64) {
        self.bytes += bytes;
        self.touches += bytes * hz;
    }

    fn join(&mut self, other: Sum) {
        self.add(other.bytes, other.hz());
    }

    fn hz(&self) -> f64 {
        if self.bytes > 0.0 { self.touches / self.bytes } else { 0.0 }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    truth: Sum,
    reported: Sum,
    huge: bool,
}

impl Block {
    /// The true rate of a page, or of all memory that shares an accessed bit.
    fn hz(&self) -> f64 {
        if self.huge { self.truth.touches / PAGE_SIZE as f64 } else { self.truth.hz() }
    }
}

/// Bytes of `range` in a block.
fn inside(number: u64, range: AddrRange) -> f64 {
    let block = AddrRange::new(number * BLOCK_SIZE, (number + 1) * BLOCK_SIZE);
    block.intersect(&range).map_or(0, |r| r.len()) as f64
}

/// Blocks by number.
#[derive(Debug, Default)]
struct Map(std::collections::BTreeMap<u64, Block>);

impl Map {
    /// The true and the reported rates of each block.
    fn new(
        truth: &GroundTruth,
        pieces: &[Vec<PatternShare>],
        huge: &[AddrRange],
        snapshot: &Snapshot,
        target: TargetId,
    ) -> Self {
        let mut map = Map::default();
        for (stretch, pieces) in truth.stretches.iter().zip(pieces) {
            map.truth(stretch.range(), pieces.iter().map(|p| p.hz * p.share).sum());
        }
        map.share_bits(huge);
        for region in regions(snapshot, target) {
            let hz = f64::from(region.rate.hz) * f64::from(region.touched_bp) / 1e4;
            map.reported(region.range, hz, seen(region));
        }
        map
    }

    /// Adds pages of `range` with this mean true rate.
    fn truth(&mut self, range: AddrRange, hz: f64) {
        for number in numbers(range) {
            let bytes = inside(number, range);
            self.0.entry(number).or_default().truth.add(bytes, hz);
        }
    }

    /// Marks the ranges that are in huge pages.
    fn share_bits(&mut self, huge: &[AddrRange]) {
        for range in huge {
            self.0.range_mut(numbers(*range)).for_each(|(_, block)| block.huge = true);
        }
    }

    /// Adds pages that are reported with this rate, of which a share can be observed. Skips memory that the
    /// truth does not cover.
    fn reported(&mut self, range: AddrRange, hz: f64, seen: f64) {
        for (&number, block) in self.0.range_mut(numbers(range)) {
            block.reported.add(inside(number, range) * seen, hz);
        }
    }

    fn scores(&self) -> BlockScores {
        let hot = Thresholds::default().hot_hz;
        let (mut logs, mut scores) = (Logs::default(), BlockScores::default());
        for b in self.0.values().filter(|b| b.truth.bytes > 0.0) {
            let (real, reported) = (b.hz(), b.reported.hz());
            logs.add(log2(reported), log2(real), b.truth.bytes);
            let bytes = b.truth.bytes.round() as u64;
            let warm = |hz: f64| (WARM_HZ..hot).contains(&hz);
            add(&mut scores.hot, bytes, reported >= hot, real >= hot, near(real, hot));
            let open = near(real, hot) || near(real, WARM_HZ);
            add(&mut scores.warm, bytes, warm(reported), warm(real), open);
        }
        BlockScores { log2_error: logs.error(), correlation: logs.correlation(), ..scores }
    }
}

fn log2(hz: f64) -> f64 {
    hz.clamp(MIN_SCORED_HZ, MAX_HZ).log2()
}

fn near(hz: f64, threshold: f64) -> bool {
    (threshold / DECISION_FACTOR..threshold * DECISION_FACTOR).contains(&hz)
}

fn add(score: &mut Score, bytes: u64, reported: bool, real: bool, open: bool) {
    let of = |holds: bool| if holds { bytes } else { 0 };
    score.left_out += of(open);
    score.reported += of(reported && !open);
    score.real += of(real && !open);
    score.both += of(reported && real && !open);
}

/// Weighted sums over pairs of logarithms.
#[derive(Debug, Default)]
struct Logs {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
    distance: f64,
}

impl Logs {
    fn add(&mut self, x: f64, y: f64, weight: f64) {
        self.n += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.yy += weight * y * y;
        self.xy += weight * x * y;
        self.distance += weight * (x - y).abs();
    }

    fn error(&self) -> Option<f64> {
        (self.n > 0.0).then(|| self.distance / self.n)
    }

    /// Pearson's correlation coefficient.
    fn correlation(&self) -> Option<f64> {
        let of = |product: f64, a: f64, b: f64| product / self.n - a / self.n * b / self.n;
        let (xx, yy) = (of(self.xx, self.x, self.x), of(self.yy, self.y, self.y));
        (xx > 1e-9 && yy > 1e-9).then(|| of(self.xy, self.x, self.y) / (xx * yy).sqrt())
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
