//! Drives a source by the machine's clock.

use std::ops::ControlFlow;
use std::sync::Arc;

use isotherm_core::{Driver, EndReason, Nanos, OpsError, Snapshot, Source, drive};

use crate::ops::Ops;

/// Steps `source` until `until`, or until its end, and advances the machine's time whenever the source waits.
/// Returns the snapshots that the source delivered.
pub fn run(
    source: &mut (impl Source + ?Sized),
    ops: &Ops,
    until: Nanos,
) -> Result<Vec<Arc<Snapshot>>, OpsError> {
    let mut clock = Clock { ops, until, snapshots: Vec::new() };
    drive(source, &mut clock)?;
    Ok(clock.snapshots)
}

struct Clock<'a> {
    ops: &'a Ops,
    until: Nanos,
    snapshots: Vec<Arc<Snapshot>>,
}

impl<S: ?Sized> Driver<S> for Clock<'_> {
    type End = ();
    type Error = OpsError;

    fn turn(&mut self, _: &mut S) -> Result<ControlFlow<(), Nanos>, OpsError> {
        Ok(ControlFlow::Continue(self.ops.machine().now()))
    }

    fn wait(&mut self, _: &mut S, next: Nanos) -> Result<ControlFlow<()>, OpsError> {
        self.ops.machine().advance_to(next.min(self.until));
        Ok(if next > self.until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn snapshot(&mut self, _: &mut S, s: Arc<Snapshot>) -> Result<ControlFlow<()>, OpsError> {
        self.snapshots.push(s);
        Ok(ControlFlow::Continue(()))
    }

    fn ended(&mut self, _: EndReason) {}
}
