//! Errors of nodes, weights and the placement of pages.

use std::io;
use std::path::PathBuf;

use crate::ops::AttachError;
use crate::proc::ProcError;
use crate::state::hint;

/// The reason why nodes, weights or the placement of pages cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumaError {
    /// A file operation has failed.
    #[error("cannot {what} {path}: {source}{}", hint(.source))]
    File {
        /// read or write
        what: &'static str,
        /// path of the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// A text is not understood.
    #[error("{path} has content that isotherm cannot parse: {text}")]
    Parse {
        /// path of the file
        path: PathBuf,
        /// the text in question
        text: String,
    },
    /// The kernel reports no nodes.
    #[error("this kernel reports no nodes (CONFIG_NUMA): there is nothing to interleave")]
    NoNodes,
    /// The kernel has no weights.
    #[error(
        "this kernel has no weighted interleave (Linux 6.9 has): there are no weights to set. \
         run, apply and verify work with --weights all the same"
    )]
    NoWeights,
    /// There is no such node with memory.
    #[error("there is no node {node} with memory; nodes with memory: {}", list(.have))]
    NoNode {
        /// the requested node
        node: u32,
        /// those that have memory
        have: Vec<u32>,
    },
    /// The kernel has no automatic mode.
    #[error(
        "this kernel has no automatic weights (Linux 6.16 has): isotherm interleave show prints \
         what they would be, if firmware reports bandwidth"
    )]
    NoAuto,
    /// Firmware reports no bandwidth.
    #[error(
        "the kernel has no automatic weights here: firmware reports no bandwidth (HMAT, CDAT). \
         isotherm interleave probe measures it"
    )]
    NoBandwidth,
    /// A run of another isotherm holds other weights.
    #[error(
        "isotherm {owner} runs a command with the weights {theirs}, and weights apply to the \
         whole machine: wait until it has ended, or use the same weights"
    )]
    InUse {
        /// pid of that isotherm
        owner: i32,
        /// as `0=9,1=1`
        theirs: String,
    },
    /// Another program has changed weights while a run holds them.
    #[error(
        "the weights of nodes {} differ from the requested ones, and cannot change while \
         isotherm runs a command with them: wait until it has ended, or set them back",
        list(.nodes)
    )]
    Changed {
        /// nodes with changed weights
        nodes: Vec<u32>,
    },
    /// The state file cannot be used.
    #[error(
        "cannot {what} {path}, which lists the changes of isotherm: {source}. This requires root"
    )]
    State {
        /// failed operation
        what: &'static str,
        /// path of the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// The state file is not understood.
    #[error(
        "{path}, which lists the weights from before isotherm changed them, has content that \
         isotherm cannot parse: {text}. The version of isotherm that wrote it can restore them \
         (isotherm interleave set restore). If the weights are as you want them (isotherm \
         interleave show), remove the file"
    )]
    Note {
        /// path of the file
        path: PathBuf,
        /// first characters of the file
        text: String,
    },
    /// The cpuset of the process does not allow the node.
    #[error(
        "process {pid} may use only memory of the nodes {}, and not of node {node}: change its \
         cpuset, or choose other nodes",
        list(.allowed)
    )]
    NotAllowed {
        /// pid of the process
        pid: i32,
        /// the requested node
        node: u32,
        /// nodes that the cpuset allows
        allowed: Vec<u32>,
    },
    /// The kernel hides page frames from isotherm.
    #[error(
        "cannot determine which pages belong to one large folio (/proc/kpageflags): this \
         requires root and CAP_SYS_ADMIN. Without it, isotherm would move parts of one folio to \
         different nodes"
    )]
    NoFrames,
    /// The placement of pages cannot be read or changed.
    #[error("pages of process {pid} cannot be {what}: {source}{}", rights(.source))]
    Pages {
        /// found or moved
        what: &'static str,
        /// pid of the process
        pid: i32,
        /// error of the system
        source: io::Error,
    },
    /// A memory policy cannot be set.
    #[error("the kernel rejects the memory policy: {0}")]
    Policy(io::Error),
    /// isotherm cannot allocate memory on a node.
    #[error("cannot allocate {mib} MiB on node {node} for the measurement: {source}")]
    Memory {
        /// requested size in MiB
        mib: u64,
        /// the node
        node: u32,
        /// error of the system
        source: io::Error,
    },
    /// A process cannot be held.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// error of reading `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
}

fn list(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn rights(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EPERM) => {
            ". This requires CAP_SYS_NICE for processes of other users: run as root"
        }
        _ => "",
    }
}
