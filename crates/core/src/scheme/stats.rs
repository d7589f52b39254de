//! Statistics of schemes: counters, and an event for each action.

use std::sync::Arc;
use std::time::Duration;

use crate::act::{Action, Applied};
use crate::call::TargetId;
use crate::range::AddrRange;
use crate::time::Nanos;

/// The reason why a part of a matching region was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum SkipReason {
    /// its accesses cannot be seen
    Unknown,
    /// no effect possible: no resident memory to page out, no absent memory to read
    Nothing,
    /// rejected by a filter of the scheme
    Filtered,
    /// an earlier scheme has acted on it in the same step
    Taken,
    /// acted on earlier, without a change of heat since then
    Done,
    /// the action failed on it a short time ago
    InVain,
    /// not reached: the quota was used up, or there was too much work for one turn
    Quota,
    /// skipped during the action: touched since, unknown, rejected by a page filter, or already in the wanted
    /// state
    WhileActing,
    /// the objective of the scheme is met at no age that is known
    NoAge,
}

impl SkipReason {
    /// All reasons, in index order.
    pub const ALL: [SkipReason; 9] = [
        SkipReason::Unknown,
        SkipReason::Nothing,
        SkipReason::Filtered,
        SkipReason::Taken,
        SkipReason::Done,
        SkipReason::InVain,
        SkipReason::Quota,
        SkipReason::WhileActing,
        SkipReason::NoAge,
    ];

    /// Index in [`SkipReason::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        [
            "unknown",
            "nothing",
            "filtered",
            "taken",
            "done",
            "in_vain",
            "quota",
            "while_acting",
            "no_age",
        ][self.index()]
    }
}

/// A number of regions or parts of regions, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// number of regions
    pub regions: u64,
    /// total bytes
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u64) {
        if bytes > 0 {
            self.regions += 1;
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

/// The statistics of a scheme since it began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// memory that the action was tried on
    pub tried: Count,
    /// memory that the action succeeded on
    pub applied: Count,
    /// memory that the action failed on
    pub failed: Count,
    /// memory that was skipped, counted each time, by reason: see [`SkipReason::index`]
    pub passed: [Count; SkipReason::ALL.len()],
    /// time spent acting
    pub took: Duration,
    /// number of quota windows that ended with the quota used up
    pub exceeded: u64,
    /// number of watermark checks, one per [`super::Watermarks::interval`], that found the scheme inactive
    pub inactive: u64,
    /// effective quota of the window in bytes, from time, bytes and goals; the maximum of the type means no
    /// limit
    pub effective: u64,
}

impl Stats {
    /// The memory that was skipped for this reason.
    #[must_use]
    pub fn passed(&self, why: SkipReason) -> Count {
        self.passed[why.index()]
    }
}

/// An event: one action of a scheme, or one skipped part.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionEvent {
    /// time of the event
    pub at: Nanos,
    /// number of the quota window; the first is 1
    pub window: u64,
    /// name of the scheme
    pub scheme: Arc<str>,
    /// action of the scheme
    pub action: Action,
    /// target of the action
    pub target: TargetId,
    /// address range
    pub range: AddrRange,
    /// rate of the region in Hz: [`super::mean_hz`]
    pub hz: f64,
    /// age of the region's heat
    pub age: Duration,
    /// priority score, 0 to 99
    pub score: f64,
    /// the result
    pub outcome: Outcome,
}

/// The result for a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// the action was tried
    Acted(Applied),
    /// the part was skipped
    Passed(SkipReason),
}
