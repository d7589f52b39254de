//! How soon a change is seen.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Heat, Nanos, Snapshot, TargetId};

use crate::ground_truth::GroundTruth;
use crate::kind::kind;
use crate::score::called;

/// Which changes, and when one counts as seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    /// to this heat only
    to: Option<Heat>,
    /// share of its stretch that is called right by then
    share: f64,
}

impl Seen {
    /// Any change, when nine tenths are right.
    pub const CHANGED: Seen = Seen { to: None, share: 0.9 };
    /// What becomes hot, when half of it is called so.
    pub const HEATED: Seen = Seen { to: Some(Heat::Hot), share: 0.5 };
}

/// A change that was made so shortly before the end does not count as missed.
const LATE: Duration = Duration::from_secs(2);

/// What became of the changes of heat in a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delays {
    /// from each change until nine tenths of the stretch were called right, at the end of a
    /// snapshot
    pub seen: Vec<Duration>,
    /// changes that were not seen before the next one
    pub missed: usize,
}

/// A stretch became something else.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    range: AddrRange,
    to: Heat,
    at: Nanos,
    /// when it changed again
    until: Nanos,
}

/// Finds when changes are seen, snapshot by snapshot.
#[derive(Debug)]
pub(crate) struct Seeing {
    target: TargetId,
    /// of a stretch, of 0 to 1
    share: f64,
    unseen: Vec<Change>,
    out: Delays,
    end: Nanos,
}

impl Seeing {
    /// The changes of `truth` from `from` on.
    pub fn new(truth: &GroundTruth, target: TargetId, from: Nanos, seen: Seen) -> Self {
        let all = (0..truth.stretches.len()).flat_map(|i| changes(truth, i));
        let wanted = |c: &Change| c.at >= from && seen.to.is_none_or(|to| to == c.to);
        let unseen = all.filter(wanted).collect();
        Seeing { target, share: seen.share, unseen, out: Delays::default(), end: Nanos(0) }
    }

    /// The next snapshot.
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

    /// What became of all of them.
    pub fn finish(mut self) -> Delays {
        let begun = self.unseen.iter().filter(|c| c.at < self.end);
        self.out.missed = begun.filter(|c| c.until.min(self.end).since(c.at) >= LATE).count();
        self.out
    }
}

/// How soon the changes of `truth` from `from` on were seen in `snapshots` of `target`, which are
/// ascending.
#[must_use]
pub fn delays(
    truth: &GroundTruth,
    snapshots: &[Arc<Snapshot>],
    target: TargetId,
    from: Nanos,
) -> Delays {
    let mut seeing = Seeing::new(truth, target, from, Seen::CHANGED);
    snapshots.iter().for_each(|s| seeing.push(s));
    seeing.finish()
}

/// The changes of a stretch that was ever touched. It becomes cold at the end of the interval in
/// which it does, and anything else at the begin.
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
