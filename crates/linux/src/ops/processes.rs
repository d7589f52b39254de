//! What every operations set for processes can do.

use isotherm_core::{Look, Space, TargetId};

use super::held::AttachError;

/// An operations set whose targets are processes, each held by a pidfd, so that it can never become
/// another one.
pub trait Processes: Space + Look + Send {
    /// Takes hold of process `pid`, counted in our own pid namespace.
    ///
    /// # Errors
    /// If there is no such process, or it cannot be watched.
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError>;

    /// Whether a target runs still.
    fn is_alive(&self, target: TargetId) -> bool;

    /// Lets go of a target.
    fn detach(&mut self, target: TargetId);
}
