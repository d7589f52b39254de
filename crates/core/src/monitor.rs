//! What all monitors have in common.

use std::sync::Arc;

use crate::attrs::{Attrs, AttrsError};
use crate::call::TargetId;
use crate::region::Region;
use crate::snapshot::Snapshot;
use crate::source::{EndReason, Source};
use crate::time::Nanos;

/// Is told what a monitor does, in the monitor's own thread: the seeds' callbacks.
pub trait Observer {
    /// A sampling interval has ended, of a monitor that has them; what is known of each target so far.
    fn after_sampling(&mut self, now: Nanos, targets: &[(TargetId, &[Region])]) {
        let _ = (now, targets);
    }
    /// An aggregation interval has ended.
    fn after_aggregation(&mut self, snapshot: &Arc<Snapshot>) {
        let _ = snapshot;
    }
    /// Nothing more will come.
    fn before_end(&mut self, why: EndReason) {
        let _ = why;
    }
}

/// Watches targets, and is a source of snapshots. All that differs from one kind to another lies
/// behind this.
pub trait Monitor: Source {
    /// What it looks with.
    type Ops;

    /// The operations set below.
    fn ops(&mut self) -> &mut Self::Ops;

    /// Adds one who is told what happens.
    fn observe(&mut self, observer: Box<dyn Observer>);

    /// The attributes in force.
    fn attrs(&self) -> Attrs;

    /// Changes attributes while running; what is known is kept as far as it still holds. The kind of
    /// monitor stays what it is.
    ///
    /// # Errors
    /// If they make no sense; the old ones stay in force.
    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError>;

    /// Changes the targets while running: what is known of those that stay is kept.
    fn set_targets(&mut self, ids: &[TargetId]);

    /// Goes on from now on when all targets have ended, with snapshots of nothing: others may come.
    fn outlive_targets(&mut self);

    /// Ends the monitor: the observers are told, and the next step answers that it has ended.
    fn stop(&mut self);
}
