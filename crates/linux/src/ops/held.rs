//! Taking hold of a process, so that it can never become another one.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::proc::{self, ProcError};
use crate::walker::WalkError;

/// Why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// no such pid
    #[error("there is no process {0} here (pids count in isotherm's own pid namespace)")]
    NoProcess(i32),
    /// a thread
    #[error("{0} is a thread, not a process: give the pid of its process")]
    Thread(i32),
    /// kernel thread
    #[error("process {0} ({1}) is a thread of the kernel: it has no memory of its own")]
    KernelThread(i32, String),
    /// permissions
    #[error(
        "process {pid} may not be looked at: {source}. It takes CAP_SYS_PTRACE (and, but for looking by BPF, CAP_DAC_READ_SEARCH) for processes of other users: run as root"
    )]
    Refused {
        /// which
        pid: i32,
        /// what the system said
        source: io::Error,
    },
    /// clearing
    #[error(
        "accessed bits of process {pid} cannot be cleared: {source}. process_madvise takes CAP_SYS_NICE (and CAP_SYS_PTRACE for processes of other users): run as root; and Linux 5.10 or later"
    )]
    NoClearing {
        /// which
        pid: i32,
        /// what the system said
        source: io::Error,
    },
    /// clearing all at once
    #[error(
        "accessed bits of process {pid} cannot be cleared: {source}. clear_refs takes CAP_DAC_OVERRIDE for processes of other users: run as root"
    )]
    NoClearRefs {
        /// which
        pid: i32,
        /// what the system said
        source: ProcError,
    },
    /// from the walker
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// from `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
}

/// A process held by a pidfd.
#[derive(Debug)]
pub(crate) struct Held {
    pub pid: i32,
    pub pidfd: OwnedFd,
    /// of the file system in which `/proc` is
    pub root: PathBuf,
}

impl Held {
    /// Takes hold of process `pid`, counted in our own pid namespace.
    pub fn take(root: &Path, pid: i32) -> Result<Self, AttachError> {
        proc::check_namespace(root)?;
        let stat = proc::stat(root, pid)
            .map_err(|e| if e.is_gone() { AttachError::NoProcess(pid) } else { e.into() })?;
        if stat.kernel_thread {
            return Err(AttachError::KernelThread(pid, stat.comm));
        }
        let raw = Pid::from_raw(pid).ok_or(AttachError::NoProcess(pid))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|e| not_opened(pid, e))?;
        Ok(Held { pid, pidfd, root: root.to_owned() })
    }

    /// A pidfd becomes readable when its process ends.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }
}

impl AttachError {
    /// Whether the process has ended, rather than something being wrong.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            AttachError::Walk(e) => e.is_gone(),
            AttachError::Proc(e) => e.is_gone(),
            AttachError::NoProcess(_) => true,
            _ => false,
        }
    }
}

fn not_opened(pid: i32, e: rustix::io::Errno) -> AttachError {
    match e {
        rustix::io::Errno::SRCH => AttachError::NoProcess(pid),
        rustix::io::Errno::INVAL | rustix::io::Errno::NOENT => AttachError::Thread(pid),
        e => AttachError::Refused { pid, source: e.into() },
    }
}

pub(crate) fn refused(pid: i32, e: ProcError) -> AttachError {
    match e {
        ProcError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            AttachError::Refused { pid, source }
        }
        e if e.is_gone() => AttachError::NoProcess(pid),
        e => e.into(),
    }
}

pub(super) fn not_cleared(pid: i32, source: io::Error) -> AttachError {
    if source.raw_os_error() == Some(libc::ESRCH) {
        return AttachError::NoProcess(pid);
    }
    AttachError::NoClearing { pid, source }
}

pub(super) fn no_refs(pid: i32, source: ProcError) -> AttachError {
    if source.is_gone() {
        AttachError::NoProcess(pid)
    } else {
        AttachError::NoClearRefs { pid, source }
    }
}
