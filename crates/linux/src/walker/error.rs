//! Why page tables cannot be read by BPF.

use std::io;

use crate::proc::ProcError;
use crate::proof;
use crate::sys::is_transient;

/// Why page tables cannot be read by BPF here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// load
    #[error("the kernel does not load the BPF program that reads page tables: {reason}. {help}")]
    Load {
        /// what libbpf or the kernel said
        reason: String,
        /// what may help
        help: String,
        /// the last lines of what libbpf and the kernel said
        log: Vec<String>,
    },
    /// signals
    #[error("the kernel was interrupted while it checked the BPF program: try again")]
    Interrupted,
    /// run
    #[error("the BPF program does not run: {0}")]
    Run(String),
    /// run, for want of memory or descriptors
    #[error("the BPF program cannot run just now: {what}: {source}")]
    Short {
        /// which part of it
        what: &'static str,
        /// what the system said
        source: io::Error,
    },
    /// calibration
    #[error(
        "cannot find {what} in kernel memory ({detail}): this kernel lays its memory out in a way isotherm does not know; reading page tables by BPF is not possible here"
    )]
    Bearings {
        /// what is missing
        what: &'static str,
        /// how it was sought
        detail: String,
    },
    /// proof
    #[error(
        "reading page tables by BPF does not give the truth on this kernel, so it is not used: {0}"
    )]
    Proof(#[from] proof::ProofError),
    /// which memory is System RAM
    #[error(
        "cannot tell which physical addresses are System RAM, so no page table is followed: {0}"
    )]
    Ram(#[from] ProcError),
    /// the target has no such task
    #[error("no process {0} in this pid namespace")]
    NoTask(i32),
    /// kernel threads
    #[error("process {0} has no memory of its own: it is a kernel thread, or it has just ended")]
    NoMemory(i32),
    /// old kernels
    #[error(
        "this kernel lets no BPF program of this kind find a process: bpf_task_from_pid is for it since Linux 6.10"
    )]
    NoFunction,
    /// old kernels in containers
    #[error(
        "this kernel (before 6.14) lets such a BPF program find processes in the initial pid namespace only, and this is another one: --look bpf-iter works here too, or run isotherm outside of the container"
    )]
    Namespace,
    /// no child
    #[error(
        "the proof that page tables are read rightly takes a child process for a moment, and none can be had: {0}. Raise the limit on processes (pids.max of the control group, ulimit -u), or let isotherm fork"
    )]
    Fork(io::Error),
    /// system calls on own pages
    #[error("own test pages: {0}")]
    OwnPages(#[from] io::Error),
}

impl WalkError {
    /// Whether the process has ended, rather than something being wrong.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, WalkError::NoTask(_) | WalkError::NoMemory(_))
    }

    /// Whether it may work a little later: see [`is_transient`].
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            WalkError::Short { .. } | WalkError::Interrupted => true,
            WalkError::Ram(e) => e.is_transient(),
            _ => false,
        }
    }

    /// A run of part `what` of the program failed.
    pub(crate) fn failed(what: &'static str, source: io::Error) -> Self {
        match is_transient(&source) {
            true => WalkError::Short { what, source },
            false => WalkError::Run(format!("{what}: {source}")),
        }
    }
}
