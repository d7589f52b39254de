//! What a piece says, kept until something changes it: of most memory that is hot nothing is cleared in a round, and
//! nothing new is found.

use std::ops::Range;

use super::timing::READS;
use crate::bins::Spread;
use crate::borders::GroupKind;
use crate::unknown::Unknown;

/// What a piece says of its windows since it was last cleared, or something of it was found touched.
#[derive(Debug, Clone)]
pub(super) struct PieceSummary {
    /// of each window, as rows of those that say the same: see [`GroupKind::at`]
    pub rows: Box<[WindowRow]>,
    /// of all of them
    pub sums: PieceSums,
    /// It holds as long as [`ExposureTerms::recent`] is one of these.
    pub recent: Range<u32>,
}

/// Windows of a piece beside each other, each of which says the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowRow {
    pub kind: GroupKind,
    pub windows: usize,
    /// the one behind the last
    pub end: usize,
}

/// What some windows of a piece add to the counts of their region.
#[derive(Debug, Clone, Default)]
pub(super) struct PieceSums {
    pub resident: u64,
    pub unknown: [u64; Unknown::ALL.len()],
    /// of the resident pages, those that are presumed to be like others
    pub extended: u64,
    /// of these, touched pages and page-seconds, as presumed
    pub presumed: (f64, f64),
    /// when the last of them was touched; later than any time: that may be now
    pub touched: u32,
    /// by all exposures
    pub all: Spread,
    /// by the current one: of how many pages, how many were found by each read, and what that says
    pub armed: u32,
    pub found: [u32; READS],
    pub fresh: Spread,
    /// what looks hotter than before, and is left out of these
    pub sudden: Spread,
    pub sudden_pages: u64,
}
