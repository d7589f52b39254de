//! The regions of the last snapshot.

use std::time::Duration;

use crate::range::AddrRange;
use crate::tuning::SAMPLED_HZ;

/// Minimum touched share of a sampled region: nearly all of its pages are touched.
const MIN_WHOLE_SHARE: f64 = 0.9;

/// A region of the last snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PublishedRegion {
    pub range: AddrRange,
    /// rate of the touched pages
    pub hz: f64,
    /// touched share, 0 to 1
    pub share: f64,
    /// time for which the region has kept its heat
    pub age: Duration,
    /// More of its memory is extended from samples than measured.
    pub extended: bool,
}

/// Whether samples may represent a region: it is hot, and its measured memory is evenly hot.
pub(super) fn is_sampled(known: &PublishedRegion) -> bool {
    known.hz >= SAMPLED_HZ && (known.share >= MIN_WHOLE_SHARE || known.extended)
}

/// The region that contained the middle of `range`.
pub(super) fn known_at(known: &[PublishedRegion], range: AddrRange) -> Option<&PublishedRegion> {
    let middle = range.start + range.len() / 2;
    known.get(known.partition_point(|k| k.range.end <= middle)).filter(|k| k.range.contains(middle))
}
