//! The summary of a piece, kept until the piece changes. In one round, most hot memory is not cleared, and
//! reads find no new touched page in it.

use std::ops::Range;

use super::timing::READS;
use crate::bins::Spread;
use crate::borders::GroupKind;
use crate::unknown::Unknown;

/// The counts over the windows of a piece. Valid until the piece is cleared, or a touched page is found.
#[derive(Debug, Clone)]
pub(super) struct PieceSummary {
    /// the state of each window, as rows of equal windows: see [`GroupKind::at`]
    pub rows: Box<[WindowRow]>,
    /// sums over all windows
    pub sums: PieceSums,
    /// The summary is valid while [`recent`](super::timing::ExposureTerms::recent) is in this range.
    pub recent: Range<u32>,
}

/// Adjacent windows of a piece with equal state.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowRow {
    pub kind: GroupKind,
    pub windows: usize,
    /// index after the last window
    pub end: usize,
}

/// Counts that some windows of a piece contribute to their region.
#[derive(Debug, Clone, Default)]
pub(super) struct PieceSums {
    pub resident: u64,
    pub unknown: [u64; Unknown::ALL.len()],
    /// resident pages whose rate is extended from other memory
    pub extended: u64,
    /// the presumed touched pages and page-seconds of these
    pub presumed: (f64, f64),
    /// time of the last touch of any window, in ms; `u32::MAX` if a page is young: the touch may be now
    pub touched: u32,
    /// touched pages and exposure over all exposures
    pub all: Spread,
    /// of the current exposure: cleared pages; pages found by each read; touched pages and exposure
    pub armed: u32,
    pub found: [u32; READS],
    pub fresh: Spread,
    /// windows that look hotter than before without confirmation; excluded from the current exposure's counts
    pub sudden: Spread,
    pub sudden_pages: u64,
}
