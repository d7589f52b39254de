//! The figures themselves.

use isotherm_core::AddrRange;
use serde::Serialize;

use crate::access::TargetName;
use crate::basis::Basis;
use crate::units::hex;

/// What to tell the kernel about the memory that was there in the end, and how big a limit may be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// of these keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// what was looked at
    #[serde(flatten)]
    pub basis: Basis,
    /// memory that was idle for this long in the end is worth [`Action::Cold`] or [`Action::Pageout`]
    pub min_age_ms: f64,
    /// what is locked is at most this big
    pub lock_limit_bytes: u64,
    /// what memory was told apart by: 64 KiB, or more where there is more than 2 GiB of it
    pub block_bytes: u64,
    /// names of the targets
    pub targets: Vec<TargetName>,
    /// what each action is advised for, in all
    pub actions: Vec<ActionRow>,
    /// Where, the best of each action first. Those of an action are disjoint, and so are hot and cold
    /// ones.
    pub ranges: Vec<RangeRow>,
    /// resident in the end, but its accesses cannot be seen: no advice
    pub unknown_bytes_at_end: u64,
    /// in the smallest mappings, where there are more of them than advice can be given on
    pub left_out_bytes: u64,
    /// targets beyond the 256 that advice can be given on
    pub targets_left_out: u64,
    /// a limit for all targets together, and for each if there are several
    pub sizing: Vec<Sizing>,
}

/// What a program can ask of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// keep it: `mlock`
    Lock,
    /// make huge pages: `MADV_HUGEPAGE`
    Hugepage,
    /// page it out: `MADV_PAGEOUT`, of what was idle and never touched after it had been idle
    Pageout,
    /// let it be the first to go: `MADV_COLD`, of what was idle, but had been touched after being idle
    Cold,
}

impl Action {
    /// All, in the order of reports.
    pub const ALL: [Action; 4] = [Action::Lock, Action::Hugepage, Action::Pageout, Action::Cold];

    /// The name in C.
    #[must_use]
    pub fn c_name(self) -> &'static str {
        ["mlock", "MADV_HUGEPAGE", "MADV_PAGEOUT", "MADV_COLD"][self as usize]
    }
}

/// All ranges of an action.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActionRow {
    /// which
    pub action: Action,
    /// how many
    pub ranges: u64,
    /// their length
    pub size_bytes: u64,
    /// resident in the end, of what can be seen: what is saved, of cold ones
    pub resident_bytes: u64,
    /// share of all touches seen in the record
    pub access_percent: f64,
    /// that were touched after they were idle for the least age, over the record
    pub returns: u64,
    /// a scheme in one line that does likewise, wherever it is so; null for locks
    pub scheme: Option<String>,
}

/// A range of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RangeRow {
    /// what is advised
    pub action: Action,
    /// number of the target
    pub target: u32,
    /// name of the mapping
    pub mapping: String,
    /// all of the mapping, as it was in this recording
    #[serde(serialize_with = "hex")]
    pub mapping_range: AddrRange,
    /// where the range begins in its mapping
    pub offset_bytes: u64,
    /// of the range
    pub size_bytes: u64,
    /// in this recording
    #[serde(serialize_with = "hex")]
    pub range: AddrRange,
    /// resident in the end, of what can be seen
    pub resident_bytes: u64,
    /// touches of a page a second, mean over pages and time
    pub rate_hz: f64,
    /// share of all touches seen in the record
    pub access_percent: f64,
    /// part of the time that it was hot
    pub hot_percent: f64,
    /// all of it idle since then, since the recording began; null for hot ones
    pub idle_since_ms: Option<f64>,
    /// times that a block of it was touched after being idle for the least age
    pub returns: u64,
    /// in C, where `base` is the begin of the mapping
    pub call: String,
}

/// How much memory a target takes, and what a smaller limit would cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizing {
    /// number of the target; null: all together
    pub target: Option<u32>,
    /// what it is called
    pub label: String,
    /// the working set is what was touched within this time: what was asked, or half of the record
    pub window_ms: f64,
    /// that the working set was measured for: the time after the first window
    pub measured_ms: f64,
    /// in the end
    pub resident_bytes: u64,
    /// of that, what cannot be seen; it counts as needed
    pub unknown_bytes: u64,
    /// what was needed (working set and unknown) for half of the time
    pub needed_p50_bytes: u64,
    /// not exceeded for 95 % of the time
    pub needed_p95_bytes: u64,
    /// at most
    pub needed_max_bytes: u64,
    /// added to what was needed
    pub headroom_percent: f64,
    /// for `memory.high`: the 95th percentile and the headroom; null if the target was not there for
    /// longer than the window
    pub memory_high_bytes: Option<u64>,
    /// for `memory.max`: the most and the headroom
    pub memory_max_bytes: Option<u64>,
    /// what would be read back a minute if all that is idle for the window went
    pub returned_bytes_per_min: f64,
    /// the same for other idle times, as far as the record is long enough to tell
    pub idle: Vec<IdleRow>,
}

/// Memory that was idle for a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IdleRow {
    /// for so long, or longer
    pub idle_ms: f64,
    /// mean over the time in which anything can have been idle for so long
    pub idle_bytes: u64,
    /// that was touched after it had been idle for so long, a minute of that time
    pub returned_bytes_per_min: f64,
}
