//! What schemes have done: counts, and an event for each thing done.

use std::sync::Arc;
use std::time::Duration;

use crate::act::{Action, Applied};
use crate::call::TargetId;
use crate::range::AddrRange;
use crate::time::Nanos;

/// Why a part of a matching region was passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Why {
    /// its accesses cannot be seen
    Unknown,
    /// nothing to do it to: nothing resident to be paged out, nothing absent to be read
    Nothing,
    /// a filter of the scheme
    Filtered,
    /// an earlier scheme has acted on it in the same step
    Taken,
    /// acted on, and its heat has not changed since
    Done,
    /// tried a short while ago, in vain
    InVain,
    /// its turn did not come: the quota was used up, or there was too much to do at once
    Quota,
    /// while acting: touched since, unknown, held back by a page filter, or as wanted
    WhileActing,
}

impl Why {
    /// All, in the order of their index.
    pub const ALL: [Why; 8] = [
        Why::Unknown,
        Why::Nothing,
        Why::Filtered,
        Why::Taken,
        Why::Done,
        Why::InVain,
        Why::Quota,
        Why::WhileActing,
    ];

    /// Position in [`Why::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word used in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["unknown", "nothing", "filtered", "taken", "done", "in_vain", "quota", "while_acting"]
            [self.index()]
    }
}

/// Regions, or parts of them, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// how many
    pub regions: u64,
    /// how big together
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

/// What a scheme has done since it began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// what the action was tried on
    pub tried: Count,
    /// what it was done to
    pub applied: Count,
    /// what it was tried on in vain
    pub failed: Count,
    /// what was passed over, each time that it was, by reason: see [`Why::index`]
    pub passed: [Count; Why::ALL.len()],
    /// time spent acting
    pub took: Duration,
    /// windows of the quota that ended with nothing left
    pub exceeded: u64,
    /// checks of its watermarks, one each [`super::Watermarks::interval`], that had it off
    pub inactive: u64,
    /// bytes of the window in force: the quota as time, bytes and goals have it; no bound is the
    /// biggest number
    pub effective: u64,
    /// what scored less than this did not get its turn the last time
    pub cut_off: u32,
}

impl Stats {
    /// What was passed over for this reason.
    #[must_use]
    pub fn passed(&self, why: Why) -> Count {
        self.passed[why.index()]
    }
}

/// One thing that a scheme did, or did not do.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// when
    pub at: Nanos,
    /// in which window of the quota, of those that began: the first is 1
    pub window: u64,
    /// which scheme, by name
    pub scheme: Arc<str>,
    /// what it does
    pub action: Action,
    /// to whom
    pub target: TargetId,
    /// where
    pub range: AddrRange,
    /// rate of the region: [`super::mean_hz`]
    pub hz: f64,
    /// age of the region
    pub age: Duration,
    /// 0 to 99
    pub score: f64,
    /// what came of it
    pub outcome: Outcome,
}

/// What came of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// it was tried
    Acted(Applied),
    /// it was passed over
    Passed(Why),
}
