//! What every operations set for processes can do.

use std::os::fd::BorrowedFd;

use isotherm_core::{Act, Look, Space, TargetId};

use super::held::{AttachError, Postponed};

/// Holds processes, each by a pidfd, so that it can never become another one.
pub trait Hold {
    /// Takes hold of process `pid`, counted in our own pid namespace.
    ///
    /// # Errors
    /// If there is no such process, or it cannot be watched.
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError>;

    /// Whether a target runs still.
    fn is_alive(&self, target: TargetId) -> bool;

    /// The targets that have ended, all of them asked at once, sorted.
    fn ended(&self) -> Vec<TargetId>;

    /// What is readable as long as a target that has ended is held; none if each has to be asked.
    fn ends(&self) -> Option<BorrowedFd<'_>>;

    /// Lets go of a target.
    fn detach(&mut self, target: TargetId);

    /// Readings of targets that failed for a reason that passes, so far.
    fn postponed(&self) -> Postponed {
        Postponed::default()
    }
}

/// An operations set whose targets are processes.
pub trait Processes: Space + Look + Act + Hold + Send {}

impl<T: Space + Look + Act + Hold + Send> Processes for T {}
