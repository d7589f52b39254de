//! Virtual memory of processes: page tables read by BPF, accessed bits cleared by `MADV_COLD`.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, Cost, Liveness, Look, Mapping, OpsError, PAGE_SIZE, Seen, Space, TargetId,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::annotate::annotate;
use super::mask::PageMask;
use super::window::{Window, check_folios, clear, read_windows};
use crate::proc::{self, Holdings, Pagemap, ProcError};
use crate::sys::{Advice, process_cpu, process_madvise, thread_cpu};
use crate::walker::{Identity, WalkError, Walker, fitting};

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
        "process {pid} may not be looked at: {source}. It takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH for processes of other users: run as root"
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
    /// from the walker
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// from `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
}

/// Descriptors are looked through every so many readings of the mappings: a server may hold
/// hundreds of thousands.
const HOLDINGS_EVERY: u32 = 10;
/// Of the windows in areas where no page is known to be mapped more than once, and in which no page
/// is young, one in so many is asked for such pages: asking costs more than reading.
const SHARED_EVERY: u32 = 32;

/// The operations set for processes.
pub struct Vaddr {
    walker: Walker,
    root: PathBuf,
    processes: BTreeMap<TargetId, Process>,
    next_id: u32,
    cpu: Duration,
}

pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) identity: Identity,
    /// As long as it is open, no later address space can lie where this one does, so that a new one
    /// is always told by its place.
    pagemap: Pagemap,
    mappings: Vec<Mapping>,
    holdings: Holdings,
    updates: u32,
    /// Mappings (by their start) in which pages mapped more than once have been seen since the
    /// last update.
    sharing: HashSet<u64>,
    asked: u32,
}

impl Vaddr {
    /// An operations set without targets.
    ///
    /// # Errors
    /// If page tables cannot be read by BPF here.
    pub fn new() -> Result<Self, WalkError> {
        Ok(Vaddr {
            walker: Walker::load()?,
            root: PathBuf::from("/"),
            processes: BTreeMap::new(),
            next_id: 0,
            cpu: thread_cpu(),
        })
    }

    /// Takes hold of process `pid`, counted in our own pid namespace. It is held by a pidfd from
    /// then on, so that it can never become another process.
    ///
    /// # Errors
    /// If there is no such process, or it cannot be watched.
    pub fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError> {
        let stat = proc::stat(&self.root, pid)
            .map_err(|e| if e.is_gone() { AttachError::NoProcess(pid) } else { e.into() })?;
        if stat.kernel_thread {
            return Err(AttachError::KernelThread(pid, stat.comm));
        }
        let pidfd = Pid::from_raw(pid)
            .ok_or(AttachError::NoProcess(pid))
            .and_then(|p| pidfd_open(p, PidfdFlags::empty()).map_err(|e| not_opened(pid, e)))?;
        let identity = self.walker.read(pid, std::iter::empty(), false)?.identity;
        let pagemap = Pagemap::open(&self.root, pid).map_err(|e| refused(pid, e))?;
        // Nothing to clear yet: whether it would be allowed is told all the same.
        process_madvise(pidfd.as_fd(), &[], Advice::Cold).map_err(|e| not_cleared(pid, e))?;
        if has_ended(&pidfd) {
            return Err(AttachError::NoProcess(pid));
        }
        let id = TargetId(self.next_id);
        self.next_id += 1;
        let process = Process {
            pid,
            pidfd,
            identity,
            pagemap,
            mappings: Vec::new(),
            holdings: Holdings::default(),
            updates: 0,
            sharing: HashSet::new(),
            asked: 0,
        };
        self.processes.insert(id, process);
        Ok(id)
    }

    /// Whether a target runs still.
    #[must_use]
    pub fn is_alive(&self, target: TargetId) -> bool {
        self.processes.get(&target).is_some_and(|p| !has_ended(&p.pidfd))
    }

    /// Lets go of a target.
    pub fn detach(&mut self, target: TargetId) {
        self.processes.remove(&target);
    }

    /// Answers all asks of one target.
    fn look_at(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let Some(target) = asks.first().map(|a| a.target) else { return Ok(Cost::default()) };
        let Vaddr { walker, processes, .. } = self;
        let process = processes.get_mut(&target).ok_or(OpsError::NoTarget(target))?;
        let mut cost = Cost::default();
        let mut rest = asks;
        while !rest.is_empty() {
            let n = fitting(rest.iter().map(|a| a.range)).max(1).min(rest.len());
            let (now, later) = rest.split_at(n);
            let mut windows = read_windows(walker, process, now)?;
            cost.pages += now.iter().map(|a| a.range.len() / PAGE_SIZE).sum::<u64>();
            check_folios(walker, process, &mut windows)?;
            cost.clears += clear(process, now, &mut windows)?;
            // What could not be read at all is dropped.
            out.extend(windows.iter().map(Window::seen));
            out.extend(std::iter::repeat_n(Seen::default(), now.len() - windows.len()));
            rest = later;
        }
        Ok(cost)
    }
}

impl Look for Vaddr {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let mut cost = Cost::default();
        for part in asks.chunk_by(|a, b| a.target == b.target) {
            cost += self.look_at(part, out)?;
        }
        // All this thread did since the last look: the monitor's own work counts too.
        let cpu = thread_cpu();
        cost.cpu = cpu.saturating_sub(self.cpu);
        self.cpu = cpu;
        Ok(cost)
    }
}

impl Space for Vaddr {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        out.clear();
        let Vaddr { walker, processes, root, .. } = self;
        let process = processes.get_mut(&target).ok_or(OpsError::NoTarget(target))?;
        match process.update(walker, root) {
            Ok(Liveness::Gone) => Ok(Liveness::Gone),
            Ok(state) => {
                out.extend_from_slice(&process.mappings);
                Ok(state)
            }
            Err(e) if has_ended(&process.pidfd) || e.is_gone() => Ok(Liveness::Gone),
            Err(e) => Err(OpsError::Failed(e.to_string())),
        }
    }

    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        let process = self.processes.get(&target)?;
        process_cpu(process.pid).filter(|_| !has_ended(&process.pidfd))
    }
}

impl Process {
    fn update(
        &mut self,
        walker: &mut Walker,
        root: &std::path::Path,
    ) -> Result<Liveness, AttachError> {
        let identity = walker.read(self.pid, std::iter::empty(), false)?.identity;
        if identity.start_boottime != self.identity.start_boottime {
            return Ok(Liveness::Gone);
        }
        let replaced = identity.mm != self.identity.mm;
        if replaced {
            self.identity = identity;
            self.pagemap = Pagemap::open(root, self.pid)?;
            self.updates = 0;
        }
        if self.updates.is_multiple_of(HOLDINGS_EVERY) {
            self.holdings = proc::holdings(root, self.pid);
        }
        self.updates = self.updates.wrapping_add(1);
        let mappings = proc::mappings(root, self.pid)?;
        let starts: Vec<u64> = mappings.iter().map(|m| m.range.start).collect();
        let flags = walker.vma_flags(self.pid, &starts)?;
        self.mappings = annotate(mappings, &flags, &self.mappings, &self.holdings);
        self.sharing.clear();
        Ok(match (has_ended(&self.pidfd), replaced) {
            (true, _) => Liveness::Gone,
            (_, true) => Liveness::Replaced,
            _ => Liveness::Alive,
        })
    }

    pub(super) fn mapping_at(&self, addr: u64) -> Option<&Mapping> {
        let i = self.mappings.partition_point(|m| m.range.end <= addr);
        self.mappings.get(i).filter(|m| m.range.contains(addr))
    }

    /// Which pages of `range`, in the area that begins at `area`, are mapped more than once.
    pub(super) fn shared(&mut self, range: AddrRange, area: u64) -> PageMask {
        let mut mask = PageMask::default();
        let entries = self.pagemap.read(range).enumerate();
        let shared = entries.filter(|(_, e)| e.is_present() && !e.is_exclusive());
        shared.for_each(|(i, _)| mask.insert(i));
        if !mask.is_empty() {
            self.sharing.insert(area);
        }
        mask
    }

    /// Whether it is worth asking which pages of a window are mapped more than once: always where
    /// one is young (it may be young for ever) and where such pages were seen; else now and then.
    pub(super) fn asks_for_shared(&mut self, area: u64, any_young: bool) -> bool {
        self.asked = self.asked.wrapping_add(1);
        any_young || self.sharing.contains(&area) || self.asked.is_multiple_of(SHARED_EVERY)
    }
}

impl AttachError {
    fn is_gone(&self) -> bool {
        match self {
            AttachError::Walk(e) => matches!(e, WalkError::NoTask(_) | WalkError::NoMemory(_)),
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

fn refused(pid: i32, e: ProcError) -> AttachError {
    match e {
        ProcError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            AttachError::Refused { pid, source }
        }
        e if e.is_gone() => AttachError::NoProcess(pid),
        e => e.into(),
    }
}

fn not_cleared(pid: i32, source: io::Error) -> AttachError {
    if source.raw_os_error() == Some(libc::ESRCH) {
        return AttachError::NoProcess(pid);
    }
    AttachError::NoClearing { pid, source }
}

/// A pidfd becomes readable when its process ends.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
}
