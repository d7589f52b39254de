//! Functions of every operations set for processes.

use std::os::fd::BorrowedFd;

use isotherm_core::{Act, Look, Space, TargetId};

use super::held::{AttachError, Postponed};

/// Holds processes, each by a pidfd, so that a pid can never mean another process.
pub trait Hold {
    /// Holds process `pid` of isotherm's own pid namespace as a new target.
    ///
    /// # Errors
    /// If there is no such process, or isotherm cannot watch it.
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError>;

    /// Whether a target still runs.
    fn is_alive(&self, target: TargetId) -> bool;

    /// The targets that have ended, sorted. One call checks all targets.
    fn ended(&self) -> Vec<TargetId>;

    /// A descriptor that is readable while an ended target is held; `None` if the caller has to check each
    /// target.
    fn ends(&self) -> Option<BorrowedFd<'_>>;

    /// Releases a target.
    fn detach(&mut self, target: TargetId);

    /// The readings of targets that have failed for a temporary reason so far.
    fn postponed(&self) -> Postponed;
}

/// The functions of [`Hold`] that the [`ProcessTable`](super::targets::ProcessTable) in a field provide.
macro_rules! hold_by_targets {
    ($field:tt) => {
        fn is_alive(&self, target: TargetId) -> bool {
            self.$field.is_alive(target)
        }

        fn ended(&self) -> Vec<TargetId> {
            self.$field.ended()
        }

        fn ends(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.$field.ends()
        }

        fn detach(&mut self, target: TargetId) {
            self.$field.remove(target);
        }

        fn postponed(&self) -> $crate::ops::Postponed {
            self.$field.postponed()
        }
    };
}
pub(super) use hold_by_targets;

/// An operations set whose targets are processes.
pub trait Processes: Space + Look + Act + Hold + Send {}

impl<T: Space + Look + Act + Hold + Send> Processes for T {}
