//! The figures of the advice.

use isotherm_core::AddrRange;
use serde::Serialize;

use crate::access::TargetName;
use crate::basis::Basis;
use crate::units::hex;

/// Advice for the kernel about the memory at the end of the record, and limits for a control group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// the part of the record that was used
    #[serde(flatten)]
    pub basis: Basis,
    /// minimum idle time at the end of the record for [`AdvisedAction::Cold`] or [`AdvisedAction::Pageout`]
    pub min_age_ms: f64,
    /// maximum total size of locked memory
    pub lock_limit_bytes: u64,
    /// size of the blocks that are distinguished: 64 KiB, or more if there is more than 2 GiB of memory
    pub block_bytes: u64,
    /// names of the targets
    pub targets: Vec<TargetName>,
    /// sums for each action
    pub actions: Vec<ActionRow>,
    /// The ranges, the best of each action first. The ranges of an action are disjoint, and hot and cold ranges
    /// are disjoint too.
    pub ranges: Vec<RangeRow>,
    /// resident at the end, but its accesses cannot be observed: no advice
    pub unknown_bytes_at_end: u64,
    /// bytes in the smallest mappings, without advice because there are too many mappings
    pub left_out_bytes: u64,
    /// number of targets without advice, because at most 256 get advice
    pub targets_left_out: u64,
    /// a limit for all targets together, and one for each if there are several
    pub sizing: Vec<Sizing>,
}

/// A request that a program can make to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AdvisedAction {
    /// keep it: `mlock`
    Lock,
    /// make huge pages: `MADV_HUGEPAGE`
    Hugepage,
    /// page it out: `MADV_PAGEOUT`, for memory that was idle and was never touched after an idle time
    Pageout,
    /// reclaim it first: `MADV_COLD`, for memory that was idle, but had been touched after an earlier idle time
    Cold,
}

impl AdvisedAction {
    /// All actions, in the order of reports.
    pub const ALL: [AdvisedAction; 4] =
        [AdvisedAction::Lock, AdvisedAction::Hugepage, AdvisedAction::Pageout, AdvisedAction::Cold];

    /// The name in C.
    #[must_use]
    pub fn c_name(self) -> &'static str {
        ["mlock", "MADV_HUGEPAGE", "MADV_PAGEOUT", "MADV_COLD"][self as usize]
    }
}

/// Sums over the ranges of an action.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActionRow {
    /// the action
    pub action: AdvisedAction,
    /// number of ranges
    pub ranges: u64,
    /// total length
    pub size_bytes: u64,
    /// observable resident bytes at the end; for cold ranges, the memory that is saved. `None` if the record does not
    /// contain which memory is resident
    pub resident_bytes: Option<u64>,
    /// share of all touches observed in the record
    pub access_percent: f64,
    /// touches after an idle time of at least the minimum age, over the record
    pub returns: u64,
    /// an equivalent scheme in one line, which applies to all such memory; null for locks
    pub scheme: Option<String>,
}

/// A range of a program's memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RangeRow {
    /// the advised action
    pub action: AdvisedAction,
    /// number of the target
    pub target: u32,
    /// name of the mapping
    pub mapping: String,
    /// the whole mapping, at its addresses in this recording
    #[serde(serialize_with = "hex")]
    pub mapping_range: AddrRange,
    /// offset of the range in its mapping
    pub offset_bytes: u64,
    /// length of the range
    pub size_bytes: u64,
    /// addresses in this recording
    #[serde(serialize_with = "hex")]
    pub range: AddrRange,
    /// observable resident bytes at the end; `None` as above
    pub resident_bytes: Option<u64>,
    /// touches per page and second, mean over pages and time
    pub rate_hz: f64,
    /// share of all touches observed in the record
    pub access_percent: f64,
    /// share of the time for which it was hot
    pub hot_percent: f64,
    /// time from which all of it is idle, since the start of the recording; null for hot ranges
    pub idle_since_ms: Option<f64>,
    /// times that a block of it was touched after an idle time of at least the minimum age
    pub returns: u64,
    /// the call in C, where `base` is the start of the mapping
    pub call: String,
}

/// The memory that a target requires, and the cost of a lower limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizing {
    /// number of the target; null: all targets together
    pub target: Option<u32>,
    /// label
    pub label: String,
    /// time within which memory must be touched to belong to the working set: as requested, but at most half of
    /// the record
    pub window_ms: f64,
    /// time for which the working set was measured: the time after the first window
    pub measured_ms: f64,
    /// resident bytes at the end; `None` as above
    pub resident_bytes: Option<u64>,
    /// part of it that cannot be observed; it counts as required
    pub unknown_bytes: u64,
    /// whether needs and returns follow from idle ages of pages, not of regions
    pub by_page_ages: bool,
    /// the most resident memory at once of targets whose idle ages do not count, because they are not known for the
    /// window, or the target has ended; all of it counts as required
    pub without_ages_bytes: u64,
    /// required bytes (working set and unknown): the median over time
    pub needed_p50_bytes: u64,
    /// required bytes: the 95th percentile over time
    pub needed_p95_bytes: u64,
    /// required bytes: the maximum
    pub needed_max_bytes: u64,
    /// margin added to the required bytes
    pub headroom_percent: f64,
    /// proposed `memory.high`: the 95th percentile plus the margin; null if the target existed for less than
    /// the window
    pub memory_high_bytes: Option<u64>,
    /// proposed `memory.max`: the maximum plus the margin
    pub memory_max_bytes: Option<u64>,
    /// bytes that would be read back per minute if all memory that is idle for the window were paged out
    pub returned_bytes_per_min: f64,
    /// the same for other idle times, as far as the record is long enough to measure them
    pub idle: Vec<IdleRow>,
}

/// Memory that was idle for a given time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IdleRow {
    /// minimum idle time
    pub idle_ms: f64,
    /// mean over the time in which memory can have been idle for this long
    pub idle_bytes: u64,
    /// bytes that were touched after this idle time, per minute of that time
    pub returned_bytes_per_min: f64,
}
