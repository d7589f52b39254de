//! Errors of reading page tables by BPF.

use std::io;

use crate::proc::ProcError;
use crate::proof;
use crate::sys::is_transient;

/// The reason why page tables cannot be read by BPF here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// The kernel does not load the program.
    #[error("the kernel rejects the BPF program that reads page tables: {reason}. {help}")]
    Load {
        /// message of libbpf or the kernel
        reason: String,
        /// possible remedy
        help: String,
        /// last lines of the log of libbpf and the kernel
        log: Vec<String>,
    },
    /// Signals have interrupted loading every time.
    #[error("the kernel was interrupted while it checked the BPF program: try again")]
    Interrupted,
    /// The program does not run.
    #[error("the BPF program does not run: {0}")]
    Run(String),
    /// The program does not run because memory or descriptors are short.
    #[error("the BPF program cannot run just now: {what}: {source}")]
    Short {
        /// part of the program
        what: &'static str,
        /// error of the system
        source: io::Error,
    },
    /// isotherm does not find an address in the kernel.
    #[error(
        "cannot find {what} in kernel memory ({detail}): isotherm does not know the memory \
         layout of this kernel, and cannot read page tables by BPF here"
    )]
    Bearings {
        /// the missing address
        what: &'static str,
        /// how isotherm has searched for it
        detail: String,
    },
    /// The proof with isotherm's own pages has failed.
    #[error(
        "reading page tables by BPF gives wrong results on this kernel, so isotherm does not use it: {0}"
    )]
    Proof(#[from] proof::ProofError),
    /// isotherm cannot determine which memory is System RAM.
    #[error(
        "cannot determine which physical addresses are System RAM, so isotherm reads no page tables: {0}"
    )]
    Ram(#[from] ProcError),
    /// There is no such process.
    #[error("no process {0} in this pid namespace")]
    NoTask(i32),
    /// The process has no memory, such as a kernel thread.
    #[error("process {0} has no memory of its own: it is a kernel thread, or it has just ended")]
    NoMemory(i32),
    /// The kernel is too old for this type of program.
    #[error(
        "this kernel does not let such a BPF program find a process: bpf_task_from_pid requires \
         Linux 6.10"
    )]
    NoFunction,
    /// The kernel is too old for this type of program in a container.
    #[error(
        "this kernel (before 6.14) lets such a BPF program find processes in the initial pid namespace only, and this is another one: --look bpf-iter works here too, or run isotherm outside of the container"
    )]
    Namespace,
    /// isotherm cannot start a child process for the proof.
    #[error(
        "the self-test of the page-table reader requires a child process, and cannot start one: \
         {0}. Raise the limit on processes (pids.max of the control group, ulimit -u), or let \
         isotherm fork"
    )]
    Fork(io::Error),
    /// A system call on isotherm's own pages has failed.
    #[error("own test pages: {0}")]
    OwnPages(#[from] io::Error),
}

impl WalkError {
    /// Whether the error means that the process has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, WalkError::NoTask(_) | WalkError::NoMemory(_))
    }

    /// Whether a later attempt may succeed: see [`is_transient`].
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            WalkError::Short { .. } | WalkError::Interrupted => true,
            WalkError::Ram(e) => e.is_transient(),
            _ => false,
        }
    }

    /// The error for a failed run of part `what` of the program.
    pub(crate) fn failed(what: &'static str, source: io::Error) -> Self {
        match is_transient(&source) {
            true => WalkError::Short { what, source },
            false => WalkError::Run(format!("{what}: {source}")),
        }
    }
}
