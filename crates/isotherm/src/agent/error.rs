//! Failures of the agent.

use std::io;

use isotherm_fleet::{BucketError, LakeError};
use isotherm_record::WriteError;

use crate::control::ControlError;
use crate::follow::FollowError;
use crate::metrics::MetricsError;
use crate::session::{SessionError, via_session};
use crate::stop::StopError;
use crate::usage::UsageError;
use crate::watch::WatchError;

/// Failures of the agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// an option is invalid here
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// the lake cannot be used
    #[error("{0}")]
    Lake(#[from] LakeError),
    /// the object storage cannot be used
    #[error("{0}")]
    Bucket(#[from] BucketError),
    /// the session has failed
    #[error("{0}")]
    Session(#[from] SessionError),
    /// the control socket cannot be opened
    #[error("{0}")]
    Control(#[from] ControlError),
    /// the metrics cannot be written
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// the last snapshot cannot be encoded for a client
    #[error("{0}")]
    Encode(#[from] WriteError),
    /// privileges cannot be given up
    #[error("cannot give up capabilities")]
    Privileges(#[source] io::Error),
    /// requested attributes are invalid
    #[error("{0}")]
    Attributes(String),
    /// the request is for another command
    #[error("isotherm agent only writes rows: use isotherm record, run or reclaim for that")]
    OnlyRows,
}

via_session!(AgentError: StopError, FollowError, WatchError);
