//! Virtual memory of processes: page tables read by BPF, accessed bits cleared by `MADV_COLD`.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, Cost, Liveness, Look, Mapping, Nanos, OpsError, PAGE_SIZE, Seen, Space,
    TargetId, Unknown,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::annotate::annotate;
use super::mask::PageMask;
use super::shape::{Pages, Plan, is_whole, plan};
use crate::proc::{self, Holdings, Pagemap, ProcError};
use crate::sys::{Advice, monotonic, process_cpu, process_madvise, thread_cpu};
use crate::walker::{Answer, Identity, WalkError, Walker, fitting};
use crate::x86::Level;

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
        "process {pid} may not be looked at: {source}. It takes CAP_SYS_PTRACE for processes of other users, or root"
    )]
    Refused {
        /// which
        pid: i32,
        /// what the system said
        source: io::Error,
    },
    /// clearing
    #[error(
        "accessed bits of process {pid} cannot be cleared: {source}. process_madvise takes CAP_SYS_NICE (and CAP_SYS_PTRACE for processes of other users), and Linux 5.10 or later"
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
const SHARED_EVERY: u32 = 8;
/// Ranges cleared between two time stamps: at 10 us each, a stamp is wrong by 0.6 ms at most.
const CLEARED_AT_ONCE: usize = 64;

/// The operations set for processes.
pub struct Vaddr {
    walker: Walker,
    root: PathBuf,
    processes: BTreeMap<TargetId, Process>,
    next_id: u32,
    cpu: Duration,
}

struct Process {
    pid: i32,
    pidfd: OwnedFd,
    identity: Identity,
    pagemap: Pagemap,
    mappings: Vec<Mapping>,
    holdings: Holdings,
    updates: u32,
    /// What was hidden in the windows cleared last, in the order of their addresses, to be hidden
    /// when they are read.
    cleared: Vec<(AddrRange, Hidden)>,
    /// Mappings (by their start) in which pages mapped more than once have been seen since the
    /// last update.
    sharing: HashSet<u64>,
    asked: u32,
}

/// Pages of a window whose accesses cannot be seen.
#[derive(Debug, Clone, Copy, Default)]
struct Hidden {
    shared: PageMask,
    partial: PageMask,
}

/// One window as read.
struct Window {
    range: AddrRange,
    level: Level,
    resident: PageMask,
    young: PageMask,
    hidden: Hidden,
    mapping: Option<(AddrRange, Option<Unknown>)>,
    read_at: Nanos,
    cleared_at: Nanos,
    clear: Plan,
    failed: bool,
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
        process_madvise(pidfd.as_fd(), &[], Advice::Cold)
            .map_err(|source| AttachError::NoClearing { pid, source })?;
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
            cleared: Vec::new(),
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
        if asks.iter().any(|a| a.clear) {
            process.cleared.clear();
        }
        while !rest.is_empty() {
            let n = fitting(rest.iter().map(|a| a.range)).max(1).min(rest.len());
            let (now, later) = rest.split_at(n);
            let mut windows = read_windows(walker, process, now)?;
            windows.iter().for_each(|w| cost.pages += w.range.len() / PAGE_SIZE);
            check_folios(walker, process, &mut windows)?;
            cost.clears += clear(process, &mut windows)?;
            let cleared = now.iter().zip(&windows).filter(|(a, _)| a.clear);
            process.cleared.extend(cleared.map(|(a, w)| (a.range, w.hidden)));
            // What could not be read at all is dropped.
            out.extend(windows.iter().map(Window::seen));
            out.extend(std::iter::repeat_n(Seen::default(), now.len() - windows.len()));
            rest = later;
        }
        if !process.cleared.is_sorted_by_key(|(range, _)| range.start) {
            process.cleared.sort_by_key(|(range, _)| range.start);
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
            self.cleared.clear();
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

    fn mapping_at(&self, addr: u64) -> Option<&Mapping> {
        let i = self.mappings.partition_point(|m| m.range.end <= addr);
        self.mappings.get(i).filter(|m| m.range.contains(addr))
    }

    /// What was hidden in `range` when it was cleared.
    fn hidden_when_cleared(&self, range: AddrRange) -> Option<Hidden> {
        let i = self.cleared.binary_search_by_key(&range.start, |(r, _)| r.start).ok()?;
        self.cleared.get(i).filter(|(r, _)| *r == range).map(|(_, hidden)| *hidden)
    }

    /// Which pages of `range`, in the area that begins at `area`, are mapped more than once.
    fn shared(&mut self, range: AddrRange, area: u64) -> PageMask {
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
    fn asks_for_shared(&mut self, area: u64, any_young: bool) -> bool {
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

/// A pidfd becomes readable when its process ends.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
}

/// Reads the windows of `asks`; none if the process is no longer what it was.
fn read_windows(
    walker: &mut Walker,
    process: &mut Process,
    asks: &[Ask],
) -> Result<Vec<Window>, OpsError> {
    let clears = asks.iter().any(|a| a.clear);
    let zero = walker.zero_frames().to_vec();
    let batch = match walker.read(process.pid, asks.iter().map(|a| a.range), clears) {
        Ok(batch) => batch,
        Err(WalkError::NoTask(_) | WalkError::NoMemory(_)) => return Ok(Vec::new()),
        Err(e) => return Err(OpsError::Failed(e.to_string())),
    };
    if batch.identity != process.identity {
        return Ok(Vec::new());
    }
    let read_at = monotonic();
    let mut windows = Vec::with_capacity(asks.len());
    for (ask, answer) in asks.iter().zip(batch.answers()) {
        windows.push(Window::read(ask, &answer, process, &zero, read_at));
    }
    Ok(windows)
}

/// Clears what of the plans may be cleared: large folios only if they are mapped whole.
fn check_folios(
    walker: &mut Walker,
    process: &Process,
    windows: &mut [Window],
) -> Result<(), OpsError> {
    let wanted: HashSet<AddrRange> =
        windows.iter().flat_map(|w| w.clear.folios.iter().copied()).collect();
    let mut whole = HashSet::new();
    let mut rest: &[AddrRange] = &wanted.into_iter().collect::<Vec<_>>();
    while !rest.is_empty() {
        let n = fitting(rest.iter().copied()).max(1).min(rest.len());
        let (now, later) = rest.split_at(n);
        match walker.read(process.pid, now.iter().copied(), false) {
            Ok(batch) if batch.identity == process.identity => {
                let pairs = now.iter().zip(batch.answers());
                whole.extend(pairs.filter(|(r, a)| is_mapped_whole(**r, a)).map(|(r, _)| *r));
            }
            Ok(_) | Err(WalkError::NoTask(_) | WalkError::NoMemory(_)) => {}
            Err(e) => return Err(OpsError::Failed(e.to_string())),
        }
        rest = later;
    }
    for w in windows {
        for folio in std::mem::take(&mut w.clear.folios) {
            if whole.contains(&folio) {
                w.clear.ranges.push(folio);
            } else {
                let pages = w.pages_of(folio);
                pages.for_each(|page| w.hidden.partial.insert(page));
            }
        }
    }
    Ok(())
}

fn is_mapped_whole(range: AddrRange, answer: &Answer<'_>) -> bool {
    let pages = usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0);
    let frame = |i| Some(answer.entry(i)).filter(|e| e.is_resident()).map(|e| e.frame());
    answer.level == Level::Pte && is_whole((0..pages).map(frame))
}

/// Clears the planned ranges; returns how many. A range that is refused makes its window a dropped
/// one.
fn clear(process: &Process, windows: &mut [Window]) -> Result<u64, OpsError> {
    let mut done = HashSet::new();
    let mut todo: Vec<(AddrRange, usize)> = Vec::new();
    for (i, w) in windows.iter().enumerate() {
        // Two windows in one huge page or folio: both were read, it is cleared once.
        todo.extend(w.clear.ranges.iter().filter(|r| done.insert(**r)).map(|r| (*r, i)));
    }
    let mut cleared = 0;
    for part in todo.chunks(CLEARED_AT_ONCE) {
        let ranges: Vec<AddrRange> = part.iter().map(|(r, _)| *r).collect();
        let failed = advise_cold(process, &ranges)?;
        cleared += (ranges.len() - failed.len()) as u64;
        let at = monotonic();
        for (k, (_, i)) in part.iter().enumerate() {
            if let Some(w) = windows.get_mut(*i) {
                w.cleared_at = at;
                w.failed |= failed.contains(&k);
            }
        }
    }
    Ok(cleared)
}

/// Gives all `ranges` the advice; a bad one stops the kernel, is skipped, and its index returned.
fn advise_cold(process: &Process, ranges: &[AddrRange]) -> Result<Vec<usize>, OpsError> {
    let mut failed = Vec::new();
    let mut at = 0;
    while let Some(rest) = ranges.get(at..).filter(|r| !r.is_empty()) {
        match process_madvise(process.pidfd.as_fd(), rest, Advice::Cold) {
            Ok(bytes) => at += whole_ranges(rest, bytes),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                let e = AttachError::NoClearing { pid: process.pid, source: e };
                return Err(OpsError::Failed(e.to_string()));
            }
            Err(_) => {}
        }
        if at < ranges.len() {
            failed.push(at);
            at += 1;
        }
    }
    Ok(failed)
}

/// How many of `ranges`, from the first on, `bytes` cover whole.
fn whole_ranges(ranges: &[AddrRange], bytes: u64) -> usize {
    let mut sum = 0;
    ranges
        .iter()
        .take_while(|r| {
            sum += r.len();
            sum <= bytes
        })
        .count()
}

impl Window {
    fn read(
        ask: &Ask,
        answer: &Answer<'_>,
        process: &mut Process,
        zero_frames: &[u64],
        read_at: Nanos,
    ) -> Window {
        let range = ask.range;
        let pages = usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0);
        let level = answer.level;
        let is_leaf = matches!(level, Level::Pte | Level::Pmd | Level::Pud);
        // The zero page is mapped, but it is no memory of the process.
        let resident = PageMask::of(if is_leaf { pages } else { 0 }, |i| {
            let e = answer.entry(i);
            e.is_resident() && !zero_frames.contains(&e.frame())
        });
        let young = PageMask::of(pages, |i| resident.contains(i) && answer.entry(i).is_young());
        let mapping = process.mapping_at(range.start).map(|m| (m.range, m.unknown));
        let mut window = Window {
            range,
            level,
            resident,
            young,
            hidden: Hidden::default(),
            mapping,
            read_at,
            cleared_at: read_at,
            clear: Plan::default(),
            failed: false,
        };
        if let Some((area, None)) = mapping.filter(|_| !resident.is_empty()) {
            window.hide(ask, area, process);
            if ask.clear {
                let young = young.without(&window.hidden.shared);
                let pages = Pages { window: range, area, level, mapped: &resident, young: &young };
                window.clear = plan(&pages, |i| answer.folio(i));
                window.hidden.partial = window.clear.partial;
            }
        }
        window
    }

    /// Finds out which pages cannot be seen.
    fn hide(&mut self, ask: &Ask, area: AddrRange, process: &mut Process) {
        let known = if ask.clear { None } else { process.hidden_when_cleared(self.range) };
        if let Some(hidden) = known {
            self.hidden = hidden;
        } else if process.asks_for_shared(area.start, !self.young.is_empty()) {
            self.hidden.shared = process.shared(self.range, area.start);
        }
    }

    /// The pages of the window that lie in `range`.
    fn pages_of(&self, range: AddrRange) -> std::ops::Range<usize> {
        let index = |addr: u64| {
            usize::try_from(addr.saturating_sub(self.range.start) / PAGE_SIZE).unwrap_or(0)
        };
        index(range.start)..index(range.end.min(self.range.end))
    }

    fn seen(&self) -> Seen {
        let Some((_, unknown)) = self.mapping else { return Seen::default() };
        if self.failed || self.level == Level::Changed {
            return Seen::default();
        }
        let pages = u32::try_from(self.range.len() / PAGE_SIZE).unwrap_or(u32::MAX);
        let times =
            Seen { pages, read_at: self.read_at, cleared_at: self.cleared_at, ..Seen::default() };
        let mut seen = times;
        if let Some(why) = unknown {
            seen.unknown.0[why.index()] = self.resident.count();
            return seen;
        }
        let shared = self.resident.and(&self.hidden.shared);
        let partial = self.resident.and(&self.hidden.partial).without(&shared);
        let visible = self.resident.without(&shared).without(&partial);
        seen.unknown.0[Unknown::Shared.index()] = shared.count();
        seen.unknown.0[Unknown::Partial.index()] = partial.count();
        seen.present = visible.count();
        seen.young = visible.and(&self.young).count();
        seen
    }
}
