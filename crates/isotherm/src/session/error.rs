//! Failures of a session.

use std::io;

use isotherm_core::OpsError;
use isotherm_linux::WayError;

use crate::follow::FollowError;
use crate::stop::StopError;
use crate::usage::UsageError;
use crate::watch::WatchError;

/// Failures of a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// memory cannot be watched
    #[error("{0}")]
    Watch(#[from] WatchError),
    /// a process cannot be followed
    #[error("{0}")]
    Follow(#[from] FollowError),
    /// the source has failed
    #[error("{0}")]
    Source(#[from] OpsError),
    /// signals cannot be caught
    #[error("{0}")]
    Stop(#[from] StopError),
    /// the kernel's monitor has attributes of its own
    #[error("the kernel's monitor is running: isotherm does not know its attributes")]
    KernelMonitor,
    /// no rows would be written any more
    #[error("rows of the lake cannot be written: {0}")]
    Rows(#[source] io::Error),
    /// all targets have ended
    #[error("the process has ended while it was watched")]
    Ended,
    /// this job accepts no requests
    #[error("this accepts no requests")]
    NoRequests,
}

impl From<WayError> for SessionError {
    fn from(e: WayError) -> Self {
        WatchError::from(e).into()
    }
}

impl From<UsageError> for SessionError {
    fn from(e: UsageError) -> Self {
        WatchError::from(e).into()
    }
}

/// Conversions into the errors of a job, by way of [`SessionError`].
macro_rules! via_session {
    ($job:ty: $($error:ty),*) => {
        $(impl From<$error> for $job {
            fn from(e: $error) -> Self {
                SessionError::from(e).into()
            }
        })*
    };
}
pub(crate) use via_session;
