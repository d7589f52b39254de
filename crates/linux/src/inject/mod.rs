//! System calls made inside another process, for advice that the kernel accepts only from the process itself.
//!
//! `ptrace` stops one thread of the process, lets it make the calls by an instruction of its vDSO, and restores
//! its registers. No memory of the process is written. All other threads continue.

mod error;
mod tracee;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use isotherm_core::AddrRange;

use crate::proc;
use crate::state::Thread;

pub use error::InjectError;
use tracee::{Syscall, Tracee, refused};

/// Maximum number of calls in one stop of the thread: they take some milliseconds.
const MAX_CALLS: usize = 256;
/// Maximum number of stops to try, while each one interrupts the thread where it cannot make a call.
const ATTEMPTS: u32 = 20;
/// The encoding of `syscall` on x86-64.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Maximum size of a vDSO, in bytes. It has two pages or a few more.
const MAX_VDSO: u64 = 1 << 20;

/// A change of a range of a process's memory that loses no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedCall {
    /// keep each page in memory: at once if it is there, else from its next access on: `mlock2` with `MLOCK_ONFAULT`
    Lock(AddrRange),
    /// Read all pages, and keep them in memory: `mlock`. For memory that other processes access, in whose place
    /// this process never accesses it. The thread waits for the pages, so isotherm makes one such call at a stop.
    LockNow(AddrRange),
    /// undo either: `munlock`
    Unlock(AddrRange),
    /// use huge pages: `MADV_HUGEPAGE`
    HugePages(AddrRange),
}

impl InjectedCall {
    /// The addresses.
    #[must_use]
    pub fn range(self) -> AddrRange {
        let (InjectedCall::Lock(range)
        | InjectedCall::LockNow(range)
        | InjectedCall::Unlock(range)
        | InjectedCall::HugePages(range)) = self;
        range
    }

    fn syscall(self) -> Syscall {
        let (number, last) = match self {
            InjectedCall::Lock(_) => (libc::SYS_mlock2, i64::from(libc::MLOCK_ONFAULT)),
            InjectedCall::LockNow(_) => (libc::SYS_mlock, 0),
            InjectedCall::Unlock(_) => (libc::SYS_munlock, 0),
            InjectedCall::HugePages(_) => (libc::SYS_madvise, i64::from(libc::MADV_HUGEPAGE)),
        };
        let range = self.range();
        Syscall { number, args: [range.start, range.len(), last.cast_unsigned()] }
    }

    fn waits(self) -> bool {
        matches!(self, InjectedCall::LockNow(_))
    }
}

/// Makes `requests` in a process. Returns the result of each request, in the same order; fewer results, and an error,
/// if it has ended, is stopped, waits uninterruptibly, or cannot be traced.
pub fn request(
    root: &Path,
    process: Thread,
    requests: &[InjectedCall],
) -> (Vec<io::Result<()>>, Result<(), InjectError>) {
    // Its end lets go of a thread that does not stop.
    let tracer = || request_in_this_thread(root, process, requests);
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().name("tracer".into()).spawn_scoped(scope, tracer);
        match started {
            Ok(tracer) => tracer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(source) => (Vec::new(), Err(InjectError::Trace { pid: process.pid, source })),
        }
    })
}

fn request_in_this_thread(
    root: &Path,
    process: Thread,
    requests: &[InjectedCall],
) -> (Vec<io::Result<()>>, Result<(), InjectError>) {
    let mut results = Vec::new();
    let stops = requests.chunk_by(|a, b| !a.waits() && !b.waits());
    for some in stops.flat_map(|some| some.chunks(MAX_CALLS)) {
        match at_one_stop(root, process, some) {
            Ok(some) => results.extend(some),
            Err(e) => return (results, Err(e)),
        }
    }
    (results, Ok(()))
}

/// Makes the requests at one stop. Tries again after a stop at a bad moment.
fn at_one_stop(
    root: &Path,
    process: Thread,
    requests: &[InjectedCall],
) -> Result<Vec<io::Result<()>>, InjectError> {
    let pid = process.pid;
    let mut last = InjectError::Busy(pid);
    for _ in 0..ATTEMPTS {
        let tid = thread(root, pid)?;
        let at = instruction(root, pid)?;
        // A stop interrupts the thread, so nothing is stopped in vain.
        check_filter(root, pid, tid)?;
        let done = Tracee::stop(root, pid, tid).and_then(|mut tracee| {
            check(root, process, tid, at)?;
            let calls = requests.iter().map(|r| tracee.call(at, r.syscall()));
            let calls: Result<Vec<_>, InjectError> = calls.collect();
            tracee.release()?;
            calls
        });
        match done {
            Err(InjectError::Busy(_)) => last = InjectError::Busy(pid),
            done => return done,
        }
        std::thread::yield_now();
    }
    Err(last)
}

/// Checks a stopped thread. It must be one of this process, and no filter may end it for a call. The instruction
/// must still be there, because the process may have executed another program since it was found.
fn check(root: &Path, process: Thread, tid: i32, at: u64) -> Result<(), InjectError> {
    let pid = process.pid;
    if !process.lives(root) {
        return Err(InjectError::Ended(pid));
    }
    check_filter(root, pid, tid)?;
    let mut code = SYSCALL.map(|_| 0);
    let read = memory(root, pid).and_then(|memory| memory.read_exact_at(&mut code, at));
    if read.is_ok() && code == SYSCALL { Ok(()) } else { Err(InjectError::Busy(pid)) }
}

fn check_filter(root: &Path, pid: i32, tid: i32) -> Result<(), InjectError> {
    // A kernel without seccomp has no such field.
    let mode = proc::status_field(root, tid, "Seccomp:")?;
    if mode.is_some_and(|mode| mode != "0") { Err(InjectError::Filtered(pid)) } else { Ok(()) }
}

fn memory(root: &Path, pid: i32) -> io::Result<File> {
    File::open(root.join(format!("proc/{pid}/mem")))
}

/// A thread of the process that has not ended: the first one, as a rule. One in an uninterruptible wait is the last
/// choice, because it stops only after that.
fn thread(root: &Path, pid: i32) -> Result<i32, InjectError> {
    let all = std::iter::once(pid).chain(proc::tids(root, pid));
    let mut waiting = None;
    for tid in all {
        match state(root, pid, tid) {
            None | Some('Z' | 'X') => {}
            Some('T') => return Err(InjectError::Stopped(pid)),
            Some('D') => waiting = waiting.or(Some(tid)),
            Some(_) => return Ok(tid),
        }
    }
    waiting.ok_or(InjectError::Ended(pid))
}

/// The letter of a thread's state.
fn state(root: &Path, pid: i32, tid: i32) -> Option<char> {
    // The kernel cuts names after 15 bytes, also within a character.
    let stat = std::fs::read(root.join(format!("proc/{pid}/task/{tid}/stat"))).ok()?;
    let end = stat.windows(2).rposition(|pair| pair == b") ")?;
    stat.get(end + 2).copied().map(char::from)
}

/// The address of a `syscall` instruction in the vDSO.
fn instruction(root: &Path, pid: i32) -> Result<u64, InjectError> {
    let all = proc::mappings(root, pid)?;
    let vdso = all.iter().find(|m| &*m.name == "[vdso]" && m.range.len() <= MAX_VDSO);
    let range = vdso.ok_or(InjectError::NoInstruction(pid))?.range;
    let mut code = vec![0; usize::try_from(range.len()).unwrap_or(0)];
    let read = memory(root, pid).and_then(|memory| memory.read_exact_at(&mut code, range.start));
    read.map_err(|source| refused(root, pid, source))?;
    let offset = code.windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL);
    offset.map(|i| range.start + i as u64).ok_or(InjectError::NoInstruction(pid))
}

#[cfg(test)]
mod tests;
