//! Failures of interleaving.

use std::io;

use isotherm_linux::WayError;
use isotherm_linux::numa::NumaError;
use isotherm_linux::proc::ProcError;
use isotherm_mm::mempolicy::NodeWeightsError;

use crate::follow::FollowError;
use crate::session::{SessionError, via_session};
use crate::stop::StopError;
use crate::usage::UsageError;
use crate::watch::WatchError;

/// Failures of interleaving memory over nodes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterleaveError {
    /// the kernel refuses nodes, weights or a policy
    #[error("{0}")]
    Numa(#[from] NumaError),
    /// nodes or weights are invalid
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// weights are invalid
    #[error("{0}")]
    Weights(#[from] NodeWeightsError),
    /// a file of a process cannot be read
    #[error("{0}")]
    Proc(#[from] ProcError),
    /// the command cannot run
    #[error("{0}")]
    Command(#[from] FollowError),
    /// the hot memory cannot be watched
    #[error("{0}")]
    Session(#[from] SessionError),
    /// the descendants of the command cannot be followed
    #[error("cannot follow the descendants of the command: {0}")]
    Family(#[source] io::Error),
    /// there is only one node
    #[error(
        "this machine has one node with memory: there is nothing to interleave. \
         Give --nodes 0 to do it anyway"
    )]
    OneNode,
    /// the time to watch was too short
    #[error("no snapshot was made: make --watch longer")]
    NoSnapshot,
    /// a process has no memory with weights to compare with
    #[error(
        "process {0} has no memory with a policy of weighted interleave: give --nodes, and \
         optionally --weights, to compare with these"
    )]
    NoPolicy(i32),
    /// the kernel prints a policy in an unknown form
    #[error("cannot parse the policy {0}")]
    Policy(String),
}

via_session!(InterleaveError: WayError, WatchError, StopError);
