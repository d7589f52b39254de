//! Drives a source by the machine's clock.

use std::sync::Arc;

use isotherm_core::{Nanos, OpsError, Snapshot, Source, Step};

use crate::ops::Ops;

/// Steps `source` up to `until`, or to its end, letting the machine's time pass whenever it waits.
/// The snapshots are those it delivered.
///
/// # Errors
/// Those of the source.
pub fn run(
    source: &mut (impl Source + ?Sized),
    ops: &Ops,
    until: Nanos,
) -> Result<Vec<Arc<Snapshot>>, OpsError> {
    let mut snapshots = Vec::new();
    loop {
        let now = ops.machine().now();
        match source.step(now)? {
            Step::Snapshot(s) => snapshots.push(s),
            Step::End(_) => return Ok(snapshots),
            Step::Wait(next) if next > until => {
                ops.machine().advance_to(until);
                return Ok(snapshots);
            }
            Step::Wait(next) => ops.machine().advance_to(next),
        }
    }
}
