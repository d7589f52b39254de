//! How soon a change is seen.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Heat, Nanos, Snapshot, TargetId};

use crate::ground_truth::GroundTruth;
use crate::kind::kind;
use crate::score::called;

/// A change is seen when this share of its stretch is called right.
const RIGHT: f64 = 0.9;
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

/// How soon the changes of `truth` from `from` on were seen in `snapshots` of `target`, which are
/// ascending.
#[must_use]
pub fn delays(
    truth: &GroundTruth,
    snapshots: &[Arc<Snapshot>],
    target: TargetId,
    from: Nanos,
) -> Delays {
    let mut out = Delays::default();
    let Some(end) = snapshots.last().map(|s| s.end) else { return out };
    let all = (0..truth.stretches.len()).flat_map(|i| changes(truth, i));
    for c in all.filter(|c| c.at >= from && c.at < end) {
        let mut later = snapshots.iter().filter(|s| s.end > c.at && s.end <= c.until);
        let seen = later.find(|s| called(s, target, c.range, c.to) >= RIGHT);
        match seen {
            Some(s) => out.seen.push(s.end.since(c.at)),
            None if c.until.min(end).since(c.at) >= LATE => out.missed += 1,
            None => {}
        }
    }
    out
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
