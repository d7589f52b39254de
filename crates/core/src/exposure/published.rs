//! The regions of the last snapshot.

use std::time::Duration;

use crate::range::AddrRange;
use crate::tuning::SAMPLED_HZ;

/// Of a region that is sampled, nearly all pages are touched.
const WHOLE: f64 = 0.9;

/// A region as it was published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PublishedRegion {
    pub range: AddrRange,
    /// of the pages that are touched
    pub hz: f64,
    /// which part that is
    pub share: f64,
    /// for how long it has had this heat
    pub age: Duration,
    /// Most of what is known of it is of samples.
    pub extended: bool,
}

/// Whether samples speak for a region: it is hot, and evenly so, as far as it was looked at itself.
pub(super) fn is_sampled(known: &PublishedRegion) -> bool {
    known.hz >= SAMPLED_HZ && (known.share >= WHOLE || known.extended)
}

/// What was known of the middle of `range`.
pub(super) fn known_at(known: &[PublishedRegion], range: AddrRange) -> Option<&PublishedRegion> {
    let middle = range.start + range.len() / 2;
    known.get(known.partition_point(|k| k.range.end <= middle)).filter(|k| k.range.contains(middle))
}
