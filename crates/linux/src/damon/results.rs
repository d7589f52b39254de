//! What DAMON tells each aggregation interval, however it is read.

use std::collections::BTreeMap;

use isotherm_core::{AddrRange, Nanos};

/// A region as DAMON has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawRegion {
    /// in DAMON's addresses, whose steps may stand for more than a byte
    pub range: AddrRange,
    /// sampling intervals in which it was accessed
    pub nr_accesses: u32,
    /// aggregation intervals for which it has been so
    pub age: u32,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Aggregated {
    /// when the interval ended
    pub at: Nanos,
    /// regions by the position of their target
    pub targets: BTreeMap<u64, Vec<RawRegion>>,
}
