//! Precision and recall of bytes.

use isotherm_core::{AddrRange, Heat, Snapshot, Thresholds};

/// How well one kind of memory was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// share of what was called so that is so
    pub precision: f64,
    /// share of what is so that was called so
    pub recall: f64,
}

/// Of the bytes of `snapshot` within `all`, those called `heat` against those in `truth`.
#[must_use]
pub fn score(snapshot: &Snapshot, heat: Heat, all: AddrRange, truth: AddrRange) -> Score {
    let t = Thresholds::default();
    let regions = snapshot.targets.iter().flat_map(|v| &v.regions);
    let called = regions.filter(|r| r.heat(&t) == heat).filter_map(|r| r.range.intersect(&all));
    let (mut called_bytes, mut right) = (0, 0);
    for r in called {
        called_bytes += r.len();
        right += r.intersect(&truth).map_or(0, |r| r.len());
    }
    let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    Score { precision: share(right, called_bytes), recall: share(right, truth.len()) }
}
