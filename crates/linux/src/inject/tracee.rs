//! A thread of another process that `ptrace` has stopped.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, getpid, waitid};

use super::InjectError;
use crate::proc;

// Of `linux/ptrace.h`. The types of libc's constants differ between C libraries.
const GETREGS: u32 = 12;
const SETREGS: u32 = 13;
const DETACH: u32 = 17;
const SYSCALL: u32 = 24;
const SEIZE: u32 = 0x4206;
const INTERRUPT: u32 = 0x4207;
const GET_RSEQ_CONFIGURATION: u32 = 0x420f;
/// `PTRACE_O_TRACESYSGOOD`: marks stops at system calls.
const MARK_SYSCALLS: usize = 1;
/// The status of a stop by `PTRACE_INTERRUPT`: `PTRACE_EVENT_STOP` and SIGTRAP. In a process that SIGSTOP has
/// stopped, that signal is in place of SIGTRAP.
const INTERRUPTED: i32 = 128 << 8 | libc::SIGTRAP;
/// The status of a stop at a system call.
const AT_SYSCALL: i32 = libc::SIGTRAP | 0x80;
/// Signals of a thread that executes an instruction which is not there, or whose call the kernel turns into SIGSYS at the
/// wish of the program (Syscall User Dispatch).
const FAULT_SIGNALS: [i32; 5] =
    [libc::SIGSEGV, libc::SIGILL, libc::SIGBUS, libc::SIGTRAP, libc::SIGSYS];
/// Maximum time until a thread stops. It takes some microseconds, but a thread in an uninterruptible wait stops only
/// after it: for the `exec` of a `vfork` child, or for a file server that does not answer.
const MAX_STOP_TIME: Duration = Duration::from_millis(100);
/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;

/// A system call with three arguments, none of which is a pointer to memory that the kernel reads or writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Syscall {
    pub(super) number: i64,
    pub(super) args: [u64; 3],
}

/// A stopped thread. It continues where it was when this value is released or dropped.
pub(super) struct Tracee {
    root: PathBuf,
    pid: i32,
    tid: i32,
    /// the registers to restore
    before: libc::user_regs_struct,
    /// whether it has made a call since it was stopped
    has_called: bool,
    /// whether it still has to be let go
    is_held: bool,
}

impl Tracee {
    /// Stops a thread of process `pid`.
    ///
    /// After [`InjectError::Waiting`] the thread is still traced: the kernel lets go only of stopped threads, or at the
    /// end of the thread that traces them. So this thread must end then.
    pub(super) fn stop(root: &Path, pid: i32, tid: i32) -> Result<Self, InjectError> {
        let refused = |e| refused(root, pid, e);
        trace(SEIZE, tid, 0, MARK_SYSCALLS).map_err(refused)?;
        trace(INTERRUPT, tid, 0, 0).inspect_err(|_| let_go(pid, tid, 0)).map_err(refused)?;
        let stop = wait(pid, tid, Some(MAX_STOP_TIME))?;
        let before = registers(tid).inspect_err(|_| let_go(pid, tid, 0)).map_err(refused)?;
        let (why, signal) = match stop {
            INTERRUPTED if before.cs != CODE_64 => (InjectError::ThirtyTwoBit(pid), 0),
            INTERRUPTED if is_in_sequence(root, tid, before.rip) => (InjectError::Busy(pid), 0),
            INTERRUPTED => {
                let root = root.to_owned();
                return Ok(Tracee { root, pid, tid, before, has_called: false, is_held: true });
            }
            stop => match signal_of(stop) {
                0 => (InjectError::Stopped(pid), 0),
                // A signal came first.
                signal => (InjectError::Busy(pid), signal),
            },
        };
        let_go(pid, tid, signal);
        Err(why)
    }

    /// Makes a system call by the instruction at `at`.
    pub(super) fn call(&mut self, at: u64, call: Syscall) -> Result<io::Result<()>, InjectError> {
        let [rdi, rsi, rdx] = call.args;
        let entry = libc::user_regs_struct {
            rip: at,
            rax: call.number.cast_unsigned(),
            // No interrupted call is to be started again yet.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            ..self.before
        };
        set_registers(self.tid, &entry).map_err(|e| self.refused(e))?;
        self.has_called = true;
        self.continue_to(AT_SYSCALL)?;
        self.continue_to(AT_SYSCALL)?;
        let rax = registers(self.tid).map_err(|e| self.refused(e))?.rax.cast_signed();
        // The kernel returns errors as -4095 to -1.
        let error = i32::try_from(-rax).ok().filter(|errno| (1..4096).contains(errno));
        Ok(error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno))))
    }

    /// Lets the thread continue where it was.
    pub(super) fn release(mut self) -> Result<(), InjectError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), InjectError> {
        let stopped = if self.is_held && self.has_called {
            // After a stop for an interruption, but not after one at a call, the kernel starts the call again in
            // which the thread was.
            trace(INTERRUPT, self.tid, 0, 0)
                .map_err(|e| self.refused(e))
                .and_then(|()| self.continue_to(INTERRUPTED))
        } else {
            Ok(())
        };
        self.detach(0);
        stopped
    }

    fn refused(&self, e: io::Error) -> InjectError {
        refused(&self.root, self.pid, e)
    }

    /// Continues until a stop of this status. Any other stop is that of a signal: then lets the thread go with it.
    fn continue_to(&mut self, status: i32) -> Result<(), InjectError> {
        trace(SYSCALL, self.tid, 0, 0).map_err(|e| self.refused(e))?;
        let stop = wait(self.pid, self.tid, None).inspect_err(|_| self.is_held = false)?;
        if stop == status {
            return Ok(());
        }
        // A fault of the instruction is not the program's.
        let signal = signal_of(stop);
        self.detach(if FAULT_SIGNALS.contains(&signal) { 0 } else { signal });
        Err(match signal {
            libc::SIGSYS => InjectError::Filtered(self.pid),
            _ => InjectError::Busy(self.pid),
        })
    }

    fn detach(&mut self, signal: i32) {
        if std::mem::replace(&mut self.is_held, false) {
            // Only a thread that was killed refuses it.
            let _ = set_registers(self.tid, &self.before);
            let_go(self.pid, self.tid, signal);
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The signal that a stop is about to deliver; 0 if there is none.
fn signal_of(stop: i32) -> i32 {
    if stop >> 8 == 0 && stop != AT_SYSCALL { stop } else { 0 }
}

/// Lets a thread go, with a signal unless that is 0. Only a thread that was killed refuses that: its parent learns of
/// its end after this process has.
fn let_go(pid: i32, tid: i32, signal: i32) {
    if trace(DETACH, tid, 0, usize::try_from(signal).unwrap_or(0)).is_err() {
        let _ = wait(pid, tid, None);
    }
}

/// The reason why the kernel refused. For a process that has just ended, the kernel returns one of several errors.
pub(super) fn refused(root: &Path, pid: i32, source: io::Error) -> InjectError {
    let has_ended = proc::stat(root, pid).map_or(true, |stat| stat.has_ended);
    if has_ended || source.raw_os_error() == Some(libc::ESRCH) {
        InjectError::Ended(pid)
    } else {
        InjectError::Trace { pid, source }
    }
}

/// Waits for the next stop of a thread, and returns its status; at most for `limit` if it is in an uninterruptible wait.
/// A thread that has ended is left to its parent.
fn wait(pid: i32, tid: i32, limit: Option<Duration>) -> Result<i32, InjectError> {
    let begin = Instant::now();
    let ended = || InjectError::Ended(pid);
    let tid_of = Pid::from_raw(tid).ok_or_else(ended)?;
    let wait = |options| waitid(WaitId::Pid(tid_of), options);
    let stopped = WaitIdOptions::STOPPED;
    let mut look = stopped | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    look.set(WaitIdOptions::NOHANG, limit.is_some());
    loop {
        match wait(look) {
            Ok(Some(status)) if status.trapped() => {}
            Ok(None) => {
                // A thread that only lacks a CPU stops later.
                let is_late = limit.is_some_and(|limit| begin.elapsed() >= limit);
                if is_late && super::state(Path::new("/"), pid, tid) == Some('D') {
                    return Err(InjectError::Waiting(pid));
                }
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            Err(rustix::io::Errno::INTR) => continue,
            _ => {
                // The kernel reports the end of a traced process to its parent only after the tracer has seen it.
                // This process sees the end of its own children itself.
                if parent(pid) != Some(getpid()) || pid != tid {
                    let _ = wait(WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                }
                return Err(ended());
            }
        }
        // It may have been killed since.
        let seen = wait(stopped | WaitIdOptions::NOHANG).ok().flatten();
        if let Some(status) = seen.as_ref().and_then(WaitIdStatus::trapping_signal) {
            return Ok(status);
        }
    }
}

fn parent(pid: i32) -> Option<Pid> {
    let of = proc::status_field(Path::new("/"), pid, "PPid:").ok()??;
    of.parse().ok().and_then(Pid::from_raw)
}

/// Whether the thread is in a restartable sequence (`rseq`). The kernel would forget that if the thread executed
/// other code in between.
fn is_in_sequence(root: &Path, tid: i32, at: u64) -> bool {
    // The address of the thread's `struct rseq`, and four numbers that do not matter.
    let mut found = [0u64; 3];
    let known = trace(
        GET_RSEQ_CONFIGURATION,
        tid,
        size_of_val(&found),
        std::ptr::from_mut(&mut found) as usize,
    );
    let [rseq, ..] = found;
    if known.is_err() || rseq == 0 {
        return false;
    }
    let path = root.join(format!("proc/{tid}/mem"));
    let words = |at: u64| -> io::Result<[u64; 3]> {
        let mut bytes = [0; 24];
        File::open(&path)?.read_exact_at(&mut bytes, at)?;
        let word = |i: usize| {
            bytes.iter().skip(8 * i).take(8).rev().fold(0, |w, &b| w << 8 | u64::from(b))
        };
        Ok([word(0), word(1), word(2)])
    };
    // `rseq_cs` in `struct rseq`, and then `start_ip` and `post_commit_offset` in `struct rseq_cs`.
    let Ok([_, sequence, _]) = words(rseq) else { return false };
    let Ok([_, start, length]) = words(sequence) else { return false };
    sequence != 0 && (start..start.saturating_add(length)).contains(&at)
}

fn registers(tid: i32) -> io::Result<libc::user_regs_struct> {
    let mut found = MaybeUninit::<libc::user_regs_struct>::uninit();
    trace(GETREGS, tid, 0, found.as_mut_ptr() as usize)?;
    // SAFETY: the kernel has filled it.
    Ok(unsafe { found.assume_init() })
}

fn set_registers(tid: i32, to: &libc::user_regs_struct) -> io::Result<()> {
    trace(SETREGS, tid, 0, std::ptr::from_ref(to) as usize)
}

/// `ptrace(2)`. `data` is a number, or the address of a value that the request reads or writes.
fn trace(request: u32, tid: i32, addr: usize, data: usize) -> io::Result<()> {
    // SAFETY: of the requests above, three have an address in `data`: GETREGS and SETREGS that of a
    // `user_regs_struct`, and GET_RSEQ_CONFIGURATION that of as many bytes as `addr` says. The other process is
    // changed only in its registers, which are restored.
    let done = unsafe { libc::ptrace(request, tid, addr, data) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
