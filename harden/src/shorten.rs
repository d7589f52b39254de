//! Transfers that succeed in part: a tracer that lets calls of one kind transfer less than the program requests.
//!
//! `strace` can make a call fail, but it can neither shorten one nor let it fail after a part. This tracer lowers the
//! length at the entry of a call. It restores the register at the exit: the kernel does not change it, and compiled code
//! relies on that.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::process::getpid;

/// Number of calls after which the rest of a run remains as it is. Reading a large file byte by byte would take minutes.
const MAX_SHORTENED: usize = 2000;
/// Bytes in which each name of a folder fits: `getdents64` fails if not even the next name fits.
const NAME_BYTES: u64 = 280;
/// Largest read, and its last place, of which the tracer finds out how much there is to read. To read at a place, the kernel
/// generates all lines of a file before it.
const MAX_PEEK: u64 = 1 << 20;

/// The begin of a line of the log that states how many bytes a `process_madvise` accepted for page-out.
pub const ACCEPTED: &str = "accepted for page-out: ";

/// A call that may transfer less than requested.
#[derive(Debug)]
pub struct Transfer {
    /// its name, as `strace` prints it
    pub name: &'static str,
    number: libc::c_long,
    /// errors with which the call that continues it may fail
    pub then: &'static [Errno],
}

/// An error and its number.
#[derive(Debug, Clone, Copy)]
pub struct Errno {
    pub name: &'static str,
    pub number: i32,
}

const EINTR: Errno = Errno { name: "EINTR", number: libc::EINTR };
const EIO: Errno = Errno { name: "EIO", number: libc::EIO };
const ENOSPC: Errno = Errno { name: "ENOSPC", number: libc::ENOSPC };
const EPIPE: Errno = Errno { name: "EPIPE", number: libc::EPIPE };
const ESRCH: Errno = Errno { name: "ESRCH", number: libc::ESRCH };

pub static TRANSFERS: [Transfer; 12] = [
    Transfer { name: "read", number: libc::SYS_read, then: &[EINTR, EIO, ESRCH] },
    Transfer { name: "pread64", number: libc::SYS_pread64, then: &[EINTR, EIO, ESRCH] },
    Transfer { name: "readv", number: libc::SYS_readv, then: &[EINTR, EIO] },
    Transfer { name: "preadv2", number: libc::SYS_preadv2, then: &[EINTR, EIO] },
    Transfer { name: "write", number: libc::SYS_write, then: &[EINTR, EIO, ENOSPC] },
    Transfer { name: "pwrite64", number: libc::SYS_pwrite64, then: &[EINTR, EIO, ENOSPC] },
    Transfer { name: "writev", number: libc::SYS_writev, then: &[EINTR, EIO, ENOSPC] },
    Transfer { name: "sendto", number: libc::SYS_sendto, then: &[EINTR, EPIPE] },
    Transfer { name: "recvfrom", number: libc::SYS_recvfrom, then: &[EINTR, EIO] },
    Transfer { name: "getdents64", number: libc::SYS_getdents64, then: &[EIO] },
    Transfer { name: "process_madvise", number: libc::SYS_process_madvise, then: &[EINTR, ESRCH] },
    Transfer { name: "process_vm_readv", number: libc::SYS_process_vm_readv, then: &[ESRCH] },
];

impl Transfer {
    fn named(name: &str) -> Result<&'static Transfer> {
        TRANSFERS.iter().find(|transfer| transfer.name == name).context("no transfer")
    }

    /// The register with the number of bytes, or of elements of a vector.
    fn length<'a>(&self, registers: &'a mut libc::user_regs_struct) -> &'a mut u64 {
        match self.number {
            libc::SYS_process_vm_readv => &mut registers.r8,
            _ => &mut registers.rdx,
        }
    }
}

/// The part of a transfer that takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// one byte, or one element
    One,
    Half,
    AllButOne,
}

/// Which transfers are shortened, and how.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    #[arg(value_parser = Transfer::named)]
    pub transfer: &'static Transfer,
    pub part: Part,
    /// number of the first call that is shortened, counted from 1
    pub first: usize,
    /// shortens each `step`-th call from there on; 0: only one
    pub step: usize,
    /// error number of the call that continues a shortened one; 0: it succeeds
    pub then: i32,
}

impl Plan {
    fn args(&self) -> Vec<String> {
        let part = self.part.to_possible_value().map(|value| value.get_name().to_owned());
        let numbers = [self.first.to_string(), self.step.to_string(), self.then.to_string()];
        [vec![self.transfer.name.to_owned(), part.unwrap_or_default()], numbers.to_vec()].concat()
    }

    /// The command that runs this program with the plan. The process becomes the tested program, so that it gets its
    /// signals, and has its parent and its exit status.
    pub fn command(&self, log: &Path) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg("shorten").arg(log).args(self.args());
        command
    }
}

/// Becomes `command`, traced by a child.
pub fn run(log: &Path, plan: &Plan, command: &[OsString]) -> Result<()> {
    let mut tracer = Command::new("/proc/self/exe");
    tracer.arg("attach").arg(log).args(plan.args()).arg(getpid().to_string());
    let mut tracer = tracer.stdout(Stdio::piped()).spawn().context("cannot start the tracer")?;
    let mut ready = String::new();
    BufReader::new(tracer.stdout.take().context("no output")?).read_line(&mut ready)?;
    ensure!(ready == READY, "the tracer has failed");
    stop_at(plan.transfer)?;
    let (program, args) = command.split_first().context("no command")?;
    Err(Command::new(program).args(args).exec()).with_context(|| program.display().to_string())
}

const READY: &str = "ready\n";

/// Lets the kernel stop this process, and all that come from it, at calls of this kind only.
fn stop_at(transfer: &Transfer) -> Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The number of the call is the first field of `struct seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(transfer.number)?),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_TRACE),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: u16::try_from(filter.len())?, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let done =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    ensure!(done == 0, "cannot install a seccomp filter: {}", io::Error::last_os_error());
    Ok(())
}

/// Traces process `pid` and all that come from it, until none is left.
pub fn attach(log: &Path, plan: &Plan, pid: i32) -> Result<()> {
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEVFORK;
    let log = File::create(log)?;
    trace(libc::PTRACE_SEIZE, pid, 0, options as usize)?;
    io::stdout().write_all(READY.as_bytes())?;
    let mut tracer = Tracer { plan, log, calls: 0, done: 0, cut: BTreeMap::new(), due: Vec::new() };
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes to `status` only.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if tid < 0 {
            return Ok(());
        }
        if libc::WIFSTOPPED(status) {
            let (request, signal) = tracer.stopped(tid, libc::WSTOPSIG(status), status >> 16)?;
            // It may have been killed in the meantime.
            let _ = trace(request, tid, 0, signal as usize);
        }
    }
}

struct Tracer<'a> {
    plan: &'a Plan,
    log: File,
    /// number of calls that could be shortened so far, and of those that were
    calls: usize,
    done: usize,
    /// the length that each thread requested whose call is shortened
    cut: BTreeMap<i32, u64>,
    /// threads and descriptors whose next call fails
    due: Vec<(i32, u64)>,
}

impl Tracer<'_> {
    /// The request that lets a stopped thread continue, and the signal that it gets.
    fn stopped(&mut self, tid: i32, signal: i32, event: i32) -> Result<(libc::c_uint, i32)> {
        let is_stop =
            matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        Ok(match event {
            libc::PTRACE_EVENT_SECCOMP => {
                let request = self.enter(tid).unwrap_or(libc::PTRACE_CONT);
                // The log states what each of these calls returns.
                let is_advice = self.plan.transfer.number == libc::SYS_process_madvise;
                (if is_advice { libc::PTRACE_SYSCALL } else { request }, 0)
            }
            libc::PTRACE_EVENT_STOP if is_stop => (libc::PTRACE_LISTEN, 0),
            0 if signal == libc::SIGTRAP | 0x80 => {
                let _ = self.leave(tid);
                (libc::PTRACE_CONT, 0)
            }
            0 => (libc::PTRACE_CONT, signal),
            _ => (libc::PTRACE_CONT, 0),
        })
    }

    /// Shortens a call, or lets it fail, if it is its turn.
    fn enter(&mut self, tid: i32) -> Result<libc::c_uint> {
        let mut registers = registers(tid)?;
        let descriptor = registers.rdi;
        let path = fs::read_link(format!("/proc/{tid}/fd/{descriptor}")).unwrap_or_default();
        let path = path.to_string_lossy();
        let name = self.plan.transfer.name;
        if let Some(at) = self.due.iter().position(|due| *due == (tid, descriptor)) {
            self.due.swap_remove(at);
            writeln!(self.log, "{name}(<{path}>) = error {} (INJECTED)", self.plan.then)?;
            // The kernel makes no call of this number, and returns what the register contains.
            registers.orig_rax = u64::MAX;
            registers.rax = i64::from(-self.plan.then).cast_unsigned();
            set_registers(tid, &registers)?;
            return Ok(libc::PTRACE_CONT);
        }
        if self.done == if self.plan.step == 0 { 1 } else { MAX_SHORTENED } {
            return Ok(libc::PTRACE_CONT);
        }
        let requested = *self.plan.transfer.length(&mut registers);
        let Some(part) = part_of(self.plan, tid, &registers, &path, requested) else {
            return Ok(libc::PTRACE_CONT);
        };
        self.calls += 1;
        let since = self.calls.checked_sub(self.plan.first);
        if !since.is_some_and(|since| since.is_multiple_of(self.plan.step.max(1))) {
            return Ok(libc::PTRACE_CONT);
        }
        *self.plan.transfer.length(&mut registers) = part;
        set_registers(tid, &registers)?;
        self.done += 1;
        self.cut.insert(tid, requested);
        // The kernel does not interrupt the reading of a BPF iterator.
        if self.plan.then != 0 && !path.contains("bpf_iter") {
            self.due.push((tid, descriptor));
        }
        writeln!(self.log, "{name}(<{path}>, {requested}) of {part} (INJECTED)")?;
        Ok(libc::PTRACE_SYSCALL)
    }

    /// Restores the length. A call that a signal interrupts starts again with all of it.
    fn leave(&mut self, tid: i32) -> Result<()> {
        let mut registers = registers(tid)?;
        let accepted = registers.rax.cast_signed();
        let is_page_out = registers.r10 == libc::MADV_PAGEOUT as u64;
        if self.plan.transfer.number == libc::SYS_process_madvise && is_page_out && accepted > 0 {
            writeln!(self.log, "{ACCEPTED}{accepted}")?;
        }
        let Some(requested) = self.cut.remove(&tid) else { return Ok(()) };
        *self.plan.transfer.length(&mut registers) = requested;
        set_registers(tid, &registers)
    }
}

/// The length to which a call may be shortened. `None` if the kernel transfers all or nothing, or if that would be as long.
fn part_of(
    plan: &Plan,
    tid: i32,
    registers: &libc::user_regs_struct,
    path: &str,
    requested: u64,
) -> Option<u64> {
    let (unit, available) = match plan.transfer.name {
        "process_madvise" | "process_vm_readv" => (1, requested),
        "getdents64" => (NAME_BYTES, requested),
        name => {
            let unit = unit(name, tid, path)?;
            let at = match name {
                "read" => position(tid, registers.rdi),
                "pread64" => Some(registers.r10),
                _ => None,
            };
            let available = at.and_then(|at| peek(tid, registers.rdi, at, requested));
            (unit, available.unwrap_or(requested))
        }
    };
    let part = match plan.part {
        Part::One => unit,
        Part::Half => available / 2 / unit * unit,
        Part::AllButOne => available.saturating_sub(1) / unit * unit,
    };
    Some(part.max(unit)).filter(|part| *part < available)
}

/// The bytes of which the kernel transfers any number. `None` if it transfers all or nothing.
fn unit(call: &str, tid: i32, path: &str) -> Option<u64> {
    let is_of_kernel = path.starts_with("/proc/") || path.starts_with("/sys/");
    if is_of_kernel && call.contains("write") {
        return None;
    }
    if path.ends_with("/pagemap") || path.starts_with("/proc/kpage") || path.ends_with("/bitmap") {
        return Some(8);
    }
    if let Some(inode) = path.strip_prefix("socket:[") {
        return is_stream(tid, inode.trim_end_matches(']')).then_some(1);
    }
    (!path.starts_with("anon_inode:") || path.contains("bpf_iter")).then_some(1)
}

/// Whether a socket is a stream; other sockets transfer whole messages.
fn is_stream(tid: i32, inode: &str) -> bool {
    let sockets = fs::read_to_string(format!("/proc/{tid}/net/unix")).unwrap_or_default();
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(6) == Some(&inode)).then(|| fields.get(4) == Some(&"0001"))
    };
    sockets.lines().find_map(of).unwrap_or(false)
}

/// The position of a descriptor.
fn position(tid: i32, descriptor: u64) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/fdinfo/{descriptor}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()
}

/// Number of bytes that a read would return, which is less than requested near the end of a file. The tracer opens the file
/// again, so that the position of the program's descriptor remains. `None` for other than files.
fn peek(tid: i32, descriptor: u64, at: u64, requested: u64) -> Option<u64> {
    let path = format!("/proc/{tid}/fd/{descriptor}");
    let is_file = fs::metadata(&path).is_ok_and(|of| of.is_file());
    let mut bytes =
        vec![0; usize::try_from(requested).ok().filter(|_| requested.max(at) <= MAX_PEEK)?];
    let read = is_file.then(|| File::open(&path).ok()?.read_at(&mut bytes, at).ok())??;
    Some(read as u64)
}

fn registers(tid: i32) -> Result<libc::user_regs_struct> {
    let mut registers = std::mem::MaybeUninit::uninit();
    trace(libc::PTRACE_GETREGS, tid, 0, registers.as_mut_ptr() as usize)?;
    // SAFETY: the kernel has written all of it.
    Ok(unsafe { registers.assume_init() })
}

fn set_registers(tid: i32, registers: &libc::user_regs_struct) -> Result<()> {
    Ok(trace(libc::PTRACE_SETREGS, tid, 0, std::ptr::from_ref(registers) as usize)?)
}

fn trace(request: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests of this module read or write only the registers at `data`, which the caller owns.
    let done = unsafe { libc::ptrace(request, tid, address, data) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
