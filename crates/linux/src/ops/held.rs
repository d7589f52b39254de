//! Holding a process by a pidfd, which shows its end. Its pid may mean another process after that.

use std::cell::{Cell, Ref, RefCell};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use isotherm_core::{Liveness, Mapping, Nanos, OpsError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use crate::proc::{self, ProcError};
use crate::sys::{descriptor_limit, is_transient, may_look_at_all, monotonic};
use crate::walker::WalkError;

/// Why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no process with this pid.
    #[error("there is no process {0} here (pids count in isotherm's own pid namespace)")]
    NoProcess(i32),
    /// The process exists, but `/proc` hides it.
    #[error(
        "process {0} exists, but /proc does not show it: it belongs to another user, and /proc \
         is mounted with hidepid. Run as root, or as a member of the group that the mount option \
         gid= names (findmnt /proc)"
    )]
    Hidden(i32),
    /// The process exists, but BPF does not find it.
    #[error(
        "process {pid} ({comm}) exists, but the kernel does not let a BPF program find it, so \
         isotherm cannot read its page tables: the system protects it from inspection (then cat \
         /proc/{pid}/maps fails too). Watch another process, or try --look smaps"
    )]
    Protected {
        /// pid of the process
        pid: i32,
        /// name of the process
        comm: String,
    },
    /// The process cannot be read although isotherm has all capabilities.
    #[error(
        "process {pid} ({comm}) exists, but the system protects it from inspection, even by \
         root: {source}. The cause is a security module, a parent user namespace, or a sandbox \
         around isotherm: run isotherm outside of it, or watch another process"
    )]
    Forbidden {
        /// pid of the process
        pid: i32,
        /// name of the process
        comm: String,
        /// error of the system
        source: io::Error,
    },
    /// The pid is the id of a thread, not of a process.
    #[error("{0} is a thread, not a process: give the pid of its process")]
    Thread(i32),
    /// The process is a kernel thread.
    #[error("process {0} ({1}) is a thread of the kernel: it has no memory of its own")]
    KernelThread(i32, String),
    /// isotherm or the machine lacks resources, such as descriptors.
    #[error(
        "process {pid} cannot be watched for now: {source}. Each process requires three \
         descriptors: raise the limit on open files (ulimit -Hn, or LimitNOFILE= of the unit) or \
         watch fewer"
    )]
    Short {
        /// pid of the process
        pid: i32,
        /// error of the system
        source: io::Error,
    },
    /// isotherm lacks the permission to read the process.
    #[error(
        "isotherm may not inspect process {pid}: {source}. Processes of other users require \
         CAP_SYS_PTRACE (and, except with BPF, CAP_DAC_READ_SEARCH): run as root"
    )]
    Refused {
        /// pid of the process
        pid: i32,
        /// error of the system
        source: io::Error,
    },
    /// isotherm cannot clear accessed bits by `process_madvise`.
    #[error(
        "cannot clear accessed bits of process {pid}: {source}. process_madvise requires Linux \
         5.10 or later, and CAP_SYS_NICE (and CAP_SYS_PTRACE for processes of other users): run \
         as root"
    )]
    NoClearing {
        /// pid of the process
        pid: i32,
        /// error of the system
        source: io::Error,
    },
    /// isotherm cannot clear all accessed bits at once by `clear_refs`.
    #[error(
        "cannot clear accessed bits of process {pid}: {source}. clear_refs requires \
         CAP_DAC_OVERRIDE for processes of other users: run as root"
    )]
    NoClearRefs {
        /// pid of the process
        pid: i32,
        /// error of the system
        source: ProcError,
    },
    /// error of the walker
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// error of reading `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
}

/// A process held by a pidfd.
#[derive(Debug)]
pub(crate) struct HeldProcess {
    pub pid: i32,
    pub pidfd: OwnedFd,
    /// root of the file system that contains `/proc`
    pub root: PathBuf,
    postponed: RefCell<Postponed>,
    /// Its mappings were too long, and are not read again before.
    too_long_until: Cell<Nanos>,
}

/// Readings of targets that failed for a temporary reason, such as a shortage of memory, or because a target
/// may no longer be read. The previous results stay valid, and isotherm tries the next reading as usual.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Postponed {
    /// number of failed readings so far
    pub count: u64,
    /// reason for the last failure; empty if there was none
    pub why: String,
}

impl std::ops::AddAssign<&Postponed> for Postponed {
    fn add_assign(&mut self, o: &Postponed) {
        self.count += o.count;
        if !o.why.is_empty() {
            self.why.clone_from(&o.why);
        }
    }
}

/// Descriptors that processes must leave free: isotherm needs them to read mappings, and for the record and the
/// control socket.
const SPARE_DESCRIPTORS: u64 = 32;

/// The pause after a reading of mappings that were too long, as a multiple of its time.
const PAUSE: u32 = 1000;

impl HeldProcess {
    /// Opens a pidfd of process `pid` in isotherm's own pid namespace.
    pub fn take(root: &Path, pid: i32) -> Result<Self, AttachError> {
        proc::check_namespace(root)?;
        let stat = proc::stat(root, pid).map_err(|e| match e.is_gone() {
            true if exists(pid) => AttachError::Hidden(pid),
            true => AttachError::NoProcess(pid),
            false => e.into(),
        })?;
        if stat.kernel_thread {
            return Err(AttachError::KernelThread(pid, stat.comm));
        }
        let raw = Pid::from_raw(pid).ok_or(AttachError::NoProcess(pid))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|e| not_opened(pid, e))?;
        if !leaves_descriptors(&pidfd) {
            return Err(not_opened(pid, rustix::io::Errno::MFILE));
        }
        let postponed = RefCell::default();
        let too_long_until = Cell::new(Nanos(0));
        Ok(HeldProcess { pid, pidfd, root: root.to_owned(), postponed, too_long_until })
    }

    /// The mappings. After a reading that failed because the data exceeded a limit, the next readings fail for a
    /// thousand times as long. Another user may have caused that, to use the CPU time of isotherm.
    pub fn mappings(&self) -> Result<Vec<Mapping>, ProcError> {
        let begun = monotonic();
        if begun < self.too_long_until.get() {
            return Err(proc::too_long(&self.root, self.pid));
        }
        let read = proc::mappings(&self.root, self.pid);
        if matches!(read, Err(ProcError::Long { .. })) {
            let end = monotonic();
            self.too_long_until.set(end + end.since(begun) * PAUSE);
        }
        read
    }

    /// The state of the process after its mappings were read again. If reading failed for a temporary reason,
    /// the failure is noted and the previous mappings stay. The same holds if isotherm may not read the
    /// process: since its last exec, it runs as another user, or it is about to end. isotherm must continue to
    /// watch the other targets.
    pub fn outcome(&self, read: Result<Liveness, AttachError>) -> Result<Liveness, OpsError> {
        match read {
            Ok(state) => Ok(state),
            Err(e) if self.has_ended() || e.is_gone() => Ok(Liveness::Gone),
            Err(e) if e.is_passing() => {
                self.postpone(&e);
                Ok(Liveness::Alive)
            }
            Err(e) => Err(OpsError::Failed(e.to_string())),
        }
    }

    /// Notes that a reading failed, and the reason.
    pub fn postpone(&self, why: &dyn std::fmt::Display) {
        *self.postponed.borrow_mut() += &Postponed { count: 1, why: why.to_string() };
    }

    /// The failures noted so far.
    pub fn postponed(&self) -> Ref<'_, Postponed> {
        self.postponed.borrow()
    }

    /// Whether the process has ended: its pidfd is readable then.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }
}

impl AttachError {
    /// Whether the error means that the process has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            AttachError::Walk(e) => e.is_gone(),
            AttachError::Proc(e) => e.is_gone(),
            AttachError::NoProcess(_) => true,
            _ => false,
        }
    }

    /// Whether a later attempt may succeed: isotherm or the machine is short of memory or descriptors.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            AttachError::Walk(e) => e.is_transient(),
            AttachError::Proc(e) | AttachError::NoClearRefs { source: e, .. } => e.is_transient(),
            AttachError::Short { .. } => true,
            AttachError::NoClearing { source, .. } => is_transient(source),
            _ => false,
        }
    }

    /// Whether this concerns one process only, for now: the other ones must be watched on. Another user can make its
    /// mappings unreadable.
    pub(crate) fn is_passing(&self) -> bool {
        let is_unreadable =
            |e: &ProcError| matches!(e, ProcError::Long { .. } | ProcError::Parse { .. });
        self.is_transient()
            || self.is_denied()
            || matches!(self, AttachError::Proc(e) if is_unreadable(e))
    }

    /// Whether isotherm may not read the process now.
    pub(crate) fn is_denied(&self) -> bool {
        match self {
            AttachError::Proc(e) => e.is_denied(),
            AttachError::Refused { .. } | AttachError::Forbidden { .. } => true,
            _ => false,
        }
    }
}

/// Whether enough descriptors remain free. A new descriptor always gets the lowest free number.
fn leaves_descriptors(newest: &OwnedFd) -> bool {
    let used = u64::try_from(newest.as_raw_fd()).unwrap_or(0);
    let most = descriptor_limit().and_then(|limit| limit.current);
    most.is_none_or(|most| used + SPARE_DESCRIPTORS <= most)
}

/// Whether a process with this pid exists, even if isotherm may not read it. Threads and processes that have
/// just ended count.
fn exists(pid: i32) -> bool {
    let sent = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).map(test_kill_process);
    matches!(sent, Some(Ok(()) | Err(rustix::io::Errno::PERM)))
}

/// The reason for which BPF does not find a held process: it has ended, or is protected.
pub(super) fn not_found(held: &HeldProcess, e: WalkError) -> AttachError {
    match (e, proc::comm(&held.root, held.pid)) {
        (WalkError::NoTask(pid), Ok(comm)) if !held.has_ended() => {
            AttachError::Protected { pid, comm }
        }
        (e, _) => e.into(),
    }
}

fn not_opened(pid: i32, e: rustix::io::Errno) -> AttachError {
    match e {
        rustix::io::Errno::SRCH => AttachError::NoProcess(pid),
        rustix::io::Errno::INVAL | rustix::io::Errno::NOENT => AttachError::Thread(pid),
        e if is_transient(&e.into()) => AttachError::Short { pid, source: e.into() },
        e => AttachError::Refused { pid, source: e.into() },
    }
}

pub(crate) fn refused(pid: i32, e: ProcError) -> AttachError {
    match e {
        ProcError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            not_permitted(pid, source)
        }
        e if e.is_gone() => AttachError::NoProcess(pid),
        e => e.into(),
    }
}

/// A user with all capabilities does not get the advice to run as root.
fn not_permitted(pid: i32, source: io::Error) -> AttachError {
    match proc::comm("/".as_ref(), pid) {
        Ok(comm) if may_look_at_all() => AttachError::Forbidden { pid, comm, source },
        _ => AttachError::Refused { pid, source },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::without;
    use crate::walker::own_pid;

    /// Found by `harden run matrix`: isotherm panicked in a sandbox that refuses `prlimit64`.
    #[test]
    fn a_process_is_held_where_the_limit_of_descriptors_cannot_be_read() {
        assert!(descriptor_limit().is_some());
        without(libc::SYS_prlimit64, || {
            assert_eq!(descriptor_limit(), None);
            assert!(HeldProcess::take("/".as_ref(), own_pid()).is_ok());
        });
    }

    /// ENOMEM or EACCES from `/proc/PID/maps` of one target ended the watching of all.
    #[test]
    fn a_failed_reading_is_counted_and_the_last_one_stays() {
        let held = HeldProcess::take("/".as_ref(), own_pid()).unwrap();
        let failed = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            Err(AttachError::Proc(ProcError::Read { path: "/proc/7/maps".into(), source }))
        };
        assert_eq!(held.outcome(Ok(Liveness::Replaced)).unwrap(), Liveness::Replaced);
        assert_eq!(*held.postponed(), Postponed::default());
        for errno in [libc::ENOMEM, libc::EMFILE, libc::EACCES, libc::EPERM] {
            assert_eq!(held.outcome(failed(errno)).unwrap(), Liveness::Alive);
        }
        // A line that was cut within its addresses.
        let parse = ProcError::Parse { path: "/proc/7/maps".into(), what: "7f".into() };
        assert_eq!(held.outcome(Err(parse.into())).unwrap(), Liveness::Alive);
        assert_eq!(held.outcome(failed(libc::ESRCH)).unwrap(), Liveness::Gone);
        assert!(held.outcome(failed(libc::EIO)).is_err());
        let postponed = held.postponed();
        assert_eq!(postponed.count, 5);
        assert!(postponed.why.contains("/proc/7/maps"), "{}", postponed.why);
        let short = WalkError::failed("a part", io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(AttachError::from(short).is_transient());
        let broken = WalkError::failed("a part", io::Error::from_raw_os_error(libc::EINVAL));
        assert!(!AttachError::from(broken).is_transient());
    }

    /// A process with long names of files used 29 % of a CPU of isotherm.
    #[test]
    fn mappings_that_are_too_long_are_not_read_again_soon() {
        let root = tempfile::tempdir().unwrap();
        let mut held = HeldProcess::take("/".as_ref(), own_pid()).unwrap();
        held.root = root.path().to_owned();
        let maps = root.path().join(format!("proc/{}/maps", held.pid));
        std::fs::create_dir_all(maps.parent().unwrap()).unwrap();
        let line = b"1000-2000 rw-p 0 0:0 0 \n";
        std::fs::write(&maps, line.repeat(2 << 20)).unwrap();
        assert!(matches!(held.mappings(), Err(ProcError::Long { .. })));
        std::fs::write(&maps, line).unwrap();
        assert!(matches!(held.mappings(), Err(ProcError::Long { .. })));
        let pause = held.too_long_until.get().since(monotonic());
        assert!(pause > std::time::Duration::from_secs(1), "{pause:?}");
        held.too_long_until.set(Nanos(0));
        assert_eq!(held.mappings().unwrap().len(), 1);
    }

    fn missing(pid: i32) -> AttachError {
        let held = HeldProcess::take("/".as_ref(), pid).unwrap();
        not_found(&held, WalkError::NoTask(pid))
    }

    /// "no process 1 in this pid namespace" was said of one that was there.
    #[test]
    fn a_living_process_that_cannot_be_found_is_protected() {
        let said = missing(own_pid());
        assert!(matches!(said, AttachError::Protected { .. }) && !said.is_gone(), "{said}");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let held = HeldProcess::take("/".as_ref(), pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(not_found(&held, WalkError::NoTask(pid)).is_gone(), "it has ended");
        assert!(exists(own_pid()) && !exists(i32::MAX) && !exists(-1));
    }
}
