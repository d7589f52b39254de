//! The interface of all monitors.

use crate::ages::KeptAges;
use crate::attrs::{Attrs, AttrsError};
use crate::call::TargetId;
use crate::source::Source;

/// Watches targets, and is a source of snapshots. This trait hides the differences between the kinds of
/// monitor.
pub trait Monitor: Source {
    /// The operations set that the monitor looks with.
    type Ops;

    /// The operations set of the monitor.
    fn ops(&mut self) -> &mut Self::Ops;

    /// The attributes in force.
    fn attrs(&self) -> Attrs;

    /// Changes attributes while the monitor runs. Knowledge stays as far as it is still valid. The kind of
    /// monitor does not change.
    ///
    /// # Errors
    /// If the attributes are invalid; the old ones stay in force.
    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError>;

    /// Changes the targets while the monitor runs. Targets that stay keep their state.
    fn set_targets(&mut self, ids: &[TargetId]);

    /// From now on, the monitor continues after all targets have ended, with empty snapshots, because targets
    /// may be added.
    fn outlive_targets(&mut self);

    /// The known ages of the targets' pages, for a monitor that follows this one. Empty if this kind of monitor
    /// counts no ages.
    fn kept_ages(&self) -> Vec<(TargetId, KeptAges)> {
        Vec::new()
    }

    /// Continues from the ages of an earlier monitor. It has an effect only before the first step, and only on the
    /// targets that are watched by then.
    fn resume_ages(&mut self, _kept: Vec<(TargetId, KeptAges)>) {}

    /// Ends the monitor: the next step returns the end.
    fn stop(&mut self);
}
