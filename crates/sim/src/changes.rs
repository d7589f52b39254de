//! Delays until changes of heat are reported.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Heat, Nanos, Snapshot, TargetId};

use crate::ground_truth::GroundTruth;
use crate::kind::kind;
use crate::score::called;

/// Which changes count, and when one counts as reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ChangeRule {
    /// only changes to this heat; `None`: all
    to: Option<Heat>,
    /// share of the stretch that must be reported correctly
    share: f64,
}

impl ChangeRule {
    /// Any change, reported once 90 % of the stretch are right.
    pub const CHANGED: ChangeRule = ChangeRule { to: None, share: 0.9 };
    /// A change to hot, reported once half of the stretch is hot.
    pub const HEATED: ChangeRule = ChangeRule { to: Some(Heat::Hot), share: 0.5 };
}

/// A change within this time before the end does not count as missed.
const END_TOLERANCE: Duration = Duration::from_secs(2);

/// The delays of the changes of heat in a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delays {
    /// for each reported change, the time from the change to the end of the first snapshot that reports enough
    /// of the stretch correctly
    pub seen: Vec<Duration>,
    /// changes that were not reported before the next one
    pub missed: usize,
}

/// A change of a stretch to another heat.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    range: AddrRange,
    to: Heat,
    at: Nanos,
    /// time of its next change
    until: Nanos,
}

/// Finds out when changes are reported, snapshot by snapshot.
#[derive(Debug)]
pub(crate) struct Seeing {
    target: TargetId,
    /// share of a stretch, from 0 to 1
    share: f64,
    unseen: Vec<Change>,
    out: Delays,
    end: Nanos,
}

impl Seeing {
    /// For the changes of `truth` from `from` on.
    pub fn new(truth: &GroundTruth, target: TargetId, from: Nanos, seen: ChangeRule) -> Self {
        let all = (0..truth.stretches.len()).flat_map(|i| changes(truth, i));
        let wanted = |c: &Change| c.at >= from && seen.to.is_none_or(|to| to == c.to);
        let unseen = all.filter(wanted).collect();
        Seeing { target, share: seen.share, unseen, out: Delays::default(), end: Nanos(0) }
    }

    /// Adds the next snapshot.
    pub fn push(&mut self, s: &Snapshot) {
        self.end = s.end;
        let Seeing { target, share, unseen, out, .. } = self;
        unseen.retain(|c| {
            let in_time = s.end > c.at && s.end <= c.until;
            let seen = in_time && called(s, *target, c.range, c.to) >= *share;
            if seen {
                out.seen.push(s.end.since(c.at));
            }
            !seen
        });
    }

    /// The delays of all changes.
    pub fn finish(mut self) -> Delays {
        let begun = self.unseen.iter().filter(|c| c.at < self.end);
        self.out.missed =
            begun.filter(|c| c.until.min(self.end).since(c.at) >= END_TOLERANCE).count();
        self.out
    }
}

/// The delays of the changes of `truth` from `from` on, in `snapshots` of `target`, which must be ascending.
#[must_use]
pub fn delays(
    truth: &GroundTruth,
    snapshots: &[Arc<Snapshot>],
    target: TargetId,
    from: Nanos,
) -> Delays {
    let mut seeing = Seeing::new(truth, target, from, ChangeRule::CHANGED);
    snapshots.iter().for_each(|s| seeing.push(s));
    seeing.finish()
}

/// The changes of a stretch that was touched at any time. A change to cold is dated at the end of the interval
/// in which it happens, any other change at the start.
fn changes(truth: &GroundTruth, i: usize) -> Vec<Change> {
    let mut out: Vec<Change> = Vec::new();
    let mut before = None;
    let touched = truth.touches(i) > 0;
    for v in truth.intervals.iter().filter(|_| touched) {
        let Some(to) = kind(truth, i, v).heat() else { continue };
        if before.is_some_and(|b| b != to) {
            let at = if to == Heat::Cold { v.end() } else { v.start() };
            if let Some(last) = out.last_mut() {
                last.until = at;
            }
            out.push(Change { range: truth.stretches[i].range(), to, at, until: Nanos(u64::MAX) });
        }
        before = Some(to);
    }
    out
}
