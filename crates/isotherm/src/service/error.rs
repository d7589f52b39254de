//! Failures of a service.

use std::io;
use std::path::PathBuf;

use isotherm_core::scheme::SchemeError;
use isotherm_linux::cgroup::CgroupError;
use isotherm_linux::damon::DamonError;
use isotherm_linux::proc::ProcError;
use isotherm_linux::{PhysicalError, WayError};
use isotherm_record::WriteError;

use super::CANNOT_ACT;
use crate::control::ControlError;
use crate::follow::FollowError;
use crate::metrics::MetricsError;
use crate::session::{SessionError, via_session};
use crate::stacks::StacksError;
use crate::stop::StopError;
use crate::text_file::TextError;
use crate::usage::UsageError;
use crate::watch::WatchError;

/// Failures of acting by schemes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// an option or a scheme is invalid
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// schemes are invalid together
    #[error("{0}")]
    Scheme(#[from] SchemeError),
    /// the text of schemes is invalid: its place and the reason
    #[error("{0}")]
    Schemes(String),
    /// requested attributes are invalid
    #[error("{0}")]
    Attributes(String),
    /// a file of options cannot be read
    #[error("{0}")]
    Text(#[from] TextError),
    /// the session has failed
    #[error("{0}")]
    Session(#[from] SessionError),
    /// the kernel's monitor has failed
    #[error("{0}")]
    Damon(#[from] DamonError),
    /// the ranges of physical memory cannot be read
    #[error("{0}")]
    Physical(#[from] PhysicalError),
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
    /// a record cannot be written
    #[error("{0}")]
    Write(#[from] WriteError),
    /// privileges cannot be given up, or standard output cannot be written
    #[error("{0}")]
    Io(#[from] io::Error),
    /// the way to look cannot act
    #[error("{CANNOT_ACT}")]
    CannotAct,
    /// actions can never work here, for these reasons
    #[error("the action is not possible here: {0}")]
    Impossible(String),
    /// figures for the schemes cannot be read yet, for this reason
    #[error("{0}")]
    Lacks(String),
    /// a figure for the schemes cannot be read
    #[error("{0}")]
    Meter(#[from] MeterError),
    /// the same, for schemes that were committed
    #[error("cannot read a metric of a goal, watermark or filter")]
    Commit(#[source] MeterError),
    /// the monitor counts no idle ages; with its name
    #[error(
        "an objective (--aim) requires idle ages of pages, and the {0} monitor does not count them: leave \
         out --monitor and --look, or give --min-age"
    )]
    NoAges(&'static str),
    /// a scheme for files selects single pages; with its name
    #[error(
        "scheme `{0}` selects single pages, which are not looked at in files: leave out page filters (--pages) \
         and objectives (--aim)"
    )]
    SinglePages(String),
    /// a text contains no scheme
    #[error("it contains no scheme: to stop acting, use isotherm service pause")]
    NoScheme,
    /// new schemes require privileges that were given up
    #[error(
        "this requires privileges that isotherm gave up at the start, because no scheme required \
         them: end the service, and start it with these schemes"
    )]
    Privileges,
    /// new options require another monitor
    #[error(
        "these options require the {required} monitor, and the {running} monitor is running: restart the \
         service"
    )]
    Monitor {
        /// the required monitor
        required: &'static str,
        /// the running monitor
        running: &'static str,
    },
    /// a record is in progress
    #[error("there is a recording already, to {}: end it first", .0.display())]
    Recording(PathBuf),
    /// there is no record to end
    #[error("there is no recording")]
    NoRecording,
    /// the path of a record is relative
    #[error("{} is not an absolute path: the service has its own working directory", .0.display())]
    Relative(PathBuf),
    /// the log of actions cannot be opened
    #[error("cannot write the log {}", path.display())]
    OpenLog {
        /// its path
        path: PathBuf,
        /// the error of the operating system
        source: io::Error,
    },
    /// The log of actions cannot be written. The reason is text, because a closed pipe here is that of the log,
    /// not of standard output.
    #[error(
        "the log {} cannot be written, and isotherm does only what it can log: make room, or run without \
         --log: {why}",
        path.display()
    )]
    Log {
        /// its path
        path: PathBuf,
        /// the reason
        why: String,
    },
    /// MGLRU was turned on while the kernel's monitor paged out
    #[error("{0}")]
    Misled(String),
    /// a request that the kernel's monitor cannot carry out
    #[error("with --look damon the kernel does all the work: restart isotherm with other options")]
    KernelWorks,
}

via_session!(ServiceError: WatchError, WayError, FollowError, StopError);

/// Failures of reading the figures that schemes use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
    /// a scheme uses a figure that can never be read here
    #[error("scheme `{scheme}`")]
    Scheme {
        /// the scheme
        scheme: String,
        /// the reason
        source: Box<MeterError>,
    },
    /// a file of the kernel cannot be read
    #[error("{0}")]
    Proc(#[from] ProcError),
    /// a control group cannot be read
    #[error("{0}")]
    Cgroup(#[from] CgroupError),
    /// stalls cannot be read
    #[error("stalls on memory cannot be read")]
    Stalls(#[source] CgroupError),
    /// the stalls of the targets cannot be read; with advice
    #[error("{help}")]
    StallsOfTargets {
        /// what to do
        help: &'static str,
        /// the reason
        source: Box<MeterError>,
    },
    /// the targets have no common group; with advice
    #[error("the targets are in more than one control group{0}")]
    SeveralGroups(&'static str),
    /// a file cannot be read
    #[error("cannot read {path}")]
    Read {
        /// its path
        path: String,
        /// the error of the operating system
        source: io::Error,
    },
    /// a file holds no number
    #[error("{path} holds no number: {text:?}")]
    NoNumber {
        /// its path
        path: String,
        /// its text
        text: String,
        /// the error
        source: std::num::ParseFloatError,
    },
}
