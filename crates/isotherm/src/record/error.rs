//! Failures of recording.

use std::io;
use std::path::PathBuf;

use isotherm_record::WriteError;

use crate::control::ControlError;
use crate::follow::FollowError;
use crate::metrics::MetricsError;
use crate::session::{SessionError, via_session};
use crate::stacks::StacksError;
use crate::stop::StopError;
use crate::usage::UsageError;
use crate::watch::WatchError;

/// Failures of recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// an option is invalid here
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// the session has failed
    #[error("{0}")]
    Session(#[from] SessionError),
    /// the record cannot be written
    #[error("{0}")]
    Write(#[from] WriteError),
    /// call stacks cannot be sampled
    #[error("{0}")]
    Stacks(#[from] StacksError),
    /// the control socket cannot be opened
    #[error("{0}")]
    Control(#[from] ControlError),
    /// the metrics cannot be written
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// the lake cannot be used
    #[error("{0}")]
    Lake(#[from] crate::agent::AgentError),
    /// privileges cannot be given up
    #[error("cannot give up capabilities")]
    Privileges(#[source] io::Error),
    /// requested attributes are invalid
    #[error("{0}")]
    Attributes(String),
    /// the attributes of the kernel's monitor were to change
    #[error(
        "the attributes of the kernel's monitor cannot change: start a new recording with other \
         attributes"
    )]
    KernelMonitor,
    /// processes were to be added to, or removed from, something else
    #[error("this records {0}: it has no processes to add or remove")]
    NoProcesses(&'static str),
    /// schemes were to be committed
    #[error("isotherm record only watches: isotherm run and isotherm reclaim act by schemes")]
    NoSchemes,
    /// a request could not be carried out completely, for this reason
    #[error("the recording ends, because its record would be incomplete: {0}")]
    Incomplete(String),
    /// another record was to be started; with the path of this one
    #[error(
        "this is isotherm record, which writes {}: isotherm service stop ends it, isotherm service \
         pause suspends it",
        .0.display()
    )]
    Recording(PathBuf),
}

via_session!(RecordError: WatchError, FollowError, StopError);
