//! The results of DAMON in each aggregation interval, independent of the interface.

use std::collections::BTreeMap;

use isotherm_core::{AddrRange, Nanos};

/// A region as DAMON reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawRegion {
    /// in DAMON's addresses, whose unit may be larger than one byte
    pub range: AddrRange,
    /// sampling intervals with an access
    pub nr_accesses: u32,
    /// aggregation intervals since its accesses last changed
    pub age: u32,
}

/// The result of one aggregation interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AggregationResult {
    /// when the interval ended
    pub at: Nanos,
    /// regions by the position of their target
    pub targets: BTreeMap<u64, Vec<RawRegion>>,
}
