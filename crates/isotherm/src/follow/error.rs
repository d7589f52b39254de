//! Failures of following processes.

use std::io;
use std::path::PathBuf;

use isotherm_linux::AttachError;
use isotherm_linux::cgroup::CgroupError;

/// Failures of following processes, and of starting a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// a process cannot be watched
    #[error("{0}")]
    Attach(#[from] AttachError),
    /// the started command cannot be watched
    #[error("the command cannot be watched")]
    Command(#[source] AttachError),
    /// a control group cannot be read
    #[error("{0}")]
    Cgroup(#[from] CgroupError),
    /// the directory of a control group without the memory controller
    #[error(
        "{} is a control group without memory: name one of version 2, or of version 1's memory \
         controller",
        .0.display()
    )]
    NoMemory(PathBuf),
    /// an excluded process does not exist
    #[error("there is no process {0}, which --except-pid names: leave it out")]
    NoProcess(i32),
    /// a process is both selected and excluded
    #[error("process {pid} is excluded by {option}: leave out one of them")]
    Excluded {
        /// the process
        pid: i32,
        /// the option that excludes it
        option: &'static str,
    },
    /// no process has this name
    #[error("no process is called `{0}`: ps -eo comm shows their names")]
    NoName(String),
    /// isotherm itself was selected
    #[error("{0} is isotherm itself, which does not watch itself")]
    Itself(i32),
    /// a process that is to be removed is not watched
    #[error("process {0} is not watched")]
    NotWatched(i32),
    /// a command has no program
    #[error("cannot start {0}: there is no such program, or it may not be executed")]
    NoProgram(String),
    /// a command cannot start
    #[error("cannot start {}", program.display())]
    Start {
        /// its program
        program: PathBuf,
        /// the error of the operating system
        source: io::Error,
    },
    /// the started command has no valid pid
    #[error("a command without a pid")]
    NoPid,
    /// the end of the command cannot be observed
    #[error("cannot wait for the command (pidfd_open: Linux 5.3)")]
    Pidfd(#[source] io::Error),
    /// the command cannot be waited for
    #[error("cannot wait for the command: {0}")]
    Wait(#[from] io::Error),
    /// the command cannot be asked to end
    #[error("cannot end the command")]
    End(#[source] io::Error),
}
