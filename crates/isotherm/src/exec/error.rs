//! Failures of running a command with advice.

use std::io;

use super::AdviceError;
use crate::follow::FollowError;

/// A command cannot run with advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// the advice is invalid
    #[error("{0}")]
    Advice(#[from] AdviceError),
    /// the command cannot run
    #[error("{0}")]
    Command(#[from] FollowError),
    /// the process to follow does not exist
    #[error("there is no process {0}: give the pid of a program that runs")]
    NoProcess(i32),
    /// the descendants of the command cannot be followed
    #[error("cannot follow the descendants of the command: {0}")]
    Family(#[source] io::Error),
}
