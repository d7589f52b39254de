//! Errors of system calls in other processes.

use std::io;

use crate::proc::ProcError;

/// The reason why a process cannot be made to call the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// The process has ended.
    #[error("process {0} has ended")]
    Ended(i32),
    /// A file of the process cannot be read.
    #[error("{0}")]
    Proc(#[from] ProcError),
    /// The kernel refuses to trace it.
    #[error(
        "cannot trace process {pid}: {source}; run as root or as the same user, and end a debugger or strace of that \
         process"
    )]
    Trace {
        /// the process
        pid: i32,
        /// error of the system
        source: io::Error,
    },
    /// Its calls are filtered, and a filter may kill it.
    #[error(
        "process {0} filters its system calls (seccomp or Syscall User Dispatch), and a filter may end a process for a \
         call that it does not expect: isotherm makes none in it"
    )]
    Filtered(i32),
    /// It has no instruction to use.
    #[error("process {0} has no vDSO with a system call: isotherm cannot make one in it")]
    NoInstruction(i32),
    /// It runs in 32-bit mode.
    #[error("process {0} is a 32-bit program: isotherm makes no system calls in it")]
    ThirtyTwoBit(i32),
    /// It is stopped by a signal.
    #[error("process {0} is stopped: continue it (kill -CONT {0})")]
    Stopped(i32),
    /// Its thread does not stop, because it is in an uninterruptible wait.
    #[error(
        "process {0} does not react: it waits for a device, a file server or a child (state D in ps); isotherm makes no \
         system calls in it before that ends"
    )]
    Waiting(i32),
    /// Each stop came at a bad moment: a signal arrived, or the thread was in a restartable sequence.
    #[error("process {0} received signals at each attempt: try again")]
    Busy(i32),
}
