//! All combinations of a command, a kind of call, its fault, and its place among the calls of the run.

use std::collections::BTreeMap;
use std::{fmt, iter};

use super::COMMANDS;
use crate::shorten::{Errno, Part, TRANSFERS, Transfer};

/// Calls, with errors that each can return.
pub const CALLS: &[(&str, &[&str])] = &[
    ("openat", &["ENOMEM", "EMFILE", "EACCES", "EINTR", "EIO", "ENOENT"]),
    ("read", &["EINTR", "EIO", "ENOMEM", "ESRCH"]),
    ("pread64", &["EINTR", "EIO", "ENOMEM", "ESRCH"]),
    ("write", &["EINTR", "EAGAIN", "ENOSPC", "EIO", "EPERM"]),
    ("pwrite64", &["EINTR", "ENOSPC", "EIO"]),
    ("bpf", &["EPERM", "ENOMEM", "EAGAIN", "EINTR"]),
    ("process_madvise", &["EINTR", "EAGAIN", "ENOMEM", "ESRCH", "EPERM"]),
    ("process_vm_readv", &["EFAULT", "ENOMEM", "ESRCH", "EPERM"]),
    ("madvise", &["EAGAIN", "ENOMEM", "EINVAL"]),
    ("ppoll", &["EINTR", "ENOMEM"]),
    ("poll", &["EINTR", "ENOMEM"]),
    ("epoll_create1", &["EMFILE", "ENOMEM"]),
    ("epoll_ctl", &["ENOMEM", "ENOSPC"]),
    ("epoll_pwait", &["EINTR"]),
    ("pidfd_open", &["EMFILE", "ENOMEM", "ESRCH"]),
    ("clone", &["EAGAIN", "ENOMEM"]),
    ("clone3", &["EAGAIN", "ENOMEM"]),
    ("socket", &["EMFILE", "ENOMEM"]),
    ("socketpair", &["EMFILE", "ENOMEM"]),
    ("bind", &["EACCES", "ENOMEM", "EADDRINUSE"]),
    ("listen", &["EADDRINUSE"]),
    ("accept4", &["EMFILE", "EINTR", "ECONNABORTED"]),
    ("sendto", &["EINTR", "ENOMEM", "EPIPE"]),
    ("recvfrom", &["EINTR", "ECONNRESET"]),
    ("statx", &["ENOMEM", "EACCES", "EIO"]),
    ("newfstatat", &["ENOMEM", "EACCES", "EIO"]),
    ("fstat", &["ENOMEM", "EIO"]),
    ("faccessat2", &["ENOMEM", "EACCES", "EIO"]),
    ("readlink", &["ENOMEM", "EACCES", "EIO"]),
    ("getcwd", &["ENOMEM", "ENOENT"]),
    ("getdents64", &["ENOMEM", "EIO", "ENOENT"]),
    ("mkdir", &["EACCES", "ENOSPC"]),
    ("chmod", &["EPERM", "EIO"]),
    ("fchmod", &["EPERM", "EIO"]),
    ("rename", &["EIO", "ENOSPC", "EPERM"]),
    ("renameat", &["EIO", "ENOSPC", "EPERM"]),
    ("unlink", &["EIO", "EPERM"]),
    ("ftruncate", &["EINTR", "EIO", "EPERM"]),
    ("fsync", &["EIO", "ENOSPC", "EINTR"]),
    ("fdatasync", &["EIO", "ENOSPC", "EINTR"]),
    ("flock", &["EINTR", "EAGAIN", "ENOLCK"]),
    ("fcntl", &["EMFILE", "EINTR"]),
    ("dup3", &["EMFILE", "EINTR"]),
    ("memfd_create", &["EMFILE", "ENOMEM"]),
    ("capget", &["EPERM"]),
    ("capset", &["EPERM"]),
    ("prctl", &["EPERM", "EINVAL"]),
    ("seccomp", &["EINVAL", "ENOMEM"]),
    ("perf_event_open", &["EPERM", "EMFILE", "ENOMEM"]),
    ("ioctl", &["EPERM", "EINTR", "EIO"]),
    ("sched_getaffinity", &["EINVAL"]),
    ("sched_setaffinity", &["EPERM", "EINVAL"]),
    ("prlimit64", &["EPERM"]),
    ("clock_nanosleep", &["EINTR"]),
    ("getrandom", &["ENOSYS"]),
    ("kill", &["EPERM", "ESRCH"]),
    ("wait4", &["EINTR"]),
    ("lseek", &["EINVAL"]),
    (OTHERS, &["EPERM", "ENOMEM"]),
];
/// All calls that neither [`CALLS`] nor [`NOT_FAILED`] names, at once.
const OTHERS: &str = "others";
/// Calls that do not fail in the trials.
const NOT_FAILED: &[&str] = &[
    // The start of the program.
    "execve",
    // Nothing can be done about it.
    "close",
    // Memory of the program: a Rust program aborts if it gets none.
    "brk",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "sigaltstack",
    // The kernel lets them fail for wrong arguments only.
    "arch_prctl",
    "clock_gettime",
    "futex",
    "getegid",
    "geteuid",
    "getgid",
    "getpid",
    "getppid",
    "gettid",
    "getuid",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "sched_yield",
    "set_robust_list",
    "set_tid_address",
    "sysinfo",
    "uname",
];
/// Calls that are repeated after these errors would be repeated without end.
const TRANSIENT: [&str; 2] = ["EINTR", "EAGAIN"];

/// What happens to calls of one kind.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// they return an error
    Error { call: &'static str, error: &'static str },
    /// they transfer a part, and the call that continues one returns an error, if there is one
    Part { transfer: &'static Transfer, part: Part, then: Option<Errno> },
}

impl Fault {
    /// Whether the kernel permits it at any time, so that the program must do the same as without it.
    pub fn is_regular(self) -> bool {
        matches!(self, Fault::Part { then, .. } if then.is_none_or(|errno| errno.name == "EINTR"))
    }

    /// The kinds of call that it concerns, of those that a run makes.
    pub fn calls(self, counts: &BTreeMap<String, usize>) -> Vec<&str> {
        let is_known =
            |name| CALLS.iter().any(|(call, _)| *call == name) || NOT_FAILED.contains(&name);
        let names = counts.keys().map(String::as_str);
        match self {
            Fault::Error { call: OTHERS, .. } => names.filter(|name| !is_known(name)).collect(),
            Fault::Error { call, .. } => names.filter(|name| *name == call).collect(),
            Fault::Part { transfer, .. } => names.filter(|name| *name == transfer.name).collect(),
        }
    }

    /// Number of calls that can have it, of `count` calls of the kind. About every second read finds the end of its file.
    pub fn possible(self, count: usize) -> usize {
        if matches!(self, Fault::Part { .. }) { count.div_ceil(2) } else { count }
    }

    /// The fault of all calls from the `first` on. If the error is one after which a program repeats the call, then only
    /// every second call has it.
    pub fn from(self, first: usize) -> Place {
        let is_transient = matches!(self, Fault::Error { error, .. } if TRANSIENT.contains(&error));
        Place { first, step: if is_transient { 2 } else { 1 } }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Error { call, error } => write!(f, "{call} returns {error}"),
            Fault::Part { transfer, part, then: None } => {
                write!(f, "{} of {part:?}", transfer.name)
            }
            Fault::Part { transfer, part, then: Some(then) } => {
                write!(f, "{} of {part:?}, then {}", transfer.name, then.name)
            }
        }
    }
}

/// The calls of a run that have the fault.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// number of the first one, from 1
    pub first: usize,
    /// each `step`-th call from there on, or only the first for 0
    pub step: usize,
}

/// All faults of all kinds of calls.
pub fn faults() -> Vec<Fault> {
    let errors = |(call, errors): &(&'static str, &'static [&'static str])| {
        let call = *call;
        errors.iter().map(move |error| Fault::Error { call, error })
    };
    let parts = |transfer: &'static Transfer| {
        // Few folders have so many files that half of the buffer would be too small.
        let parts = if transfer.name == "getdents64" { &PARTS[..1] } else { &PARTS };
        let then = || iter::once(None).chain(transfer.then.iter().copied().map(Some));
        parts
            .iter()
            .flat_map(move |&part| then().map(move |then| Fault::Part { transfer, part, then }))
    };
    CALLS.iter().flat_map(errors).chain(TRANSFERS.iter().flat_map(parts)).collect()
}

const PARTS: [Part; 3] = [Part::One, Part::Half, Part::AllButOne];

/// Where in a run a fault begins.
#[derive(Debug, Clone, Copy)]
pub enum Begin {
    /// only the first call
    First,
    /// all from the middle of the run on
    Middle,
    /// all calls
    All,
}

/// A cell of the matrix.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// index of the command
    pub of: usize,
    pub fault: Fault,
    pub begin: Begin,
}

impl Cell {
    /// The calls that have the fault, if the run makes `count` of them.
    pub fn place(&self, count: usize) -> Place {
        match self.begin {
            Begin::First => Place { first: 1, step: 0 },
            Begin::Middle => self.fault.from(count.div_ceil(2)),
            Begin::All => self.fault.from(1),
        }
    }
}

/// All cells, in an order that does not depend on the machine.
pub fn cells() -> Vec<Cell> {
    let begins = [Begin::First, Begin::Middle, Begin::All];
    let faults = faults();
    let of =
        |of| faults.iter().flat_map(move |&fault| begins.map(|begin| Cell { of, fault, begin }));
    (0..COMMANDS.len()).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_call_is_forgotten() {
        let names: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
        let unique: BTreeSet<&str> = names.iter().chain(NOT_FAILED).copied().collect();
        assert_eq!(unique.len(), names.len() + NOT_FAILED.len(), "a call is named twice");
        let counts: BTreeMap<String, usize> =
            ["read", "close", "new_call"].map(|name| (name.to_owned(), 1)).into();
        let others = Fault::Error { call: OTHERS, error: "EPERM" };
        assert_eq!(others.calls(&counts), ["new_call"]);
        let reached: BTreeSet<&str> = faults().iter().flat_map(|f| f.calls(&counts)).collect();
        assert_eq!(reached, BTreeSet::from(["read", "new_call"]));
    }

    #[test]
    fn every_cell_has_a_place_in_the_run() {
        for cell in cells() {
            for count in [1, 2, 9] {
                let Place { first, step } = cell.place(count);
                assert!((1..=count).contains(&first), "{cell:?}: {first} of {count}");
                assert!(step <= 2, "{cell:?}");
            }
        }
    }

    #[test]
    fn a_call_that_is_repeated_after_an_error_succeeds_every_second_time() {
        let step = |error| Fault::Error { call: "read", error }.from(1).step;
        assert_eq!((step("EINTR"), step("EIO")), (2, 1));
    }
}
