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
    #[error("{path} holds what isotherm does not understand: {text}")]
    Parse {
        /// path of the file
        path: PathBuf,
        /// the text in question
        text: String,
    },
    /// The kernel reports no nodes.
    #[error("this kernel tells of no nodes (CONFIG_NUMA): there is nothing to interleave")]
    NoNodes,
    /// The kernel has no weights.
    #[error(
        "this kernel has no weighted interleave (Linux 6.9 has): there are no weights to be set. Weights that are given to run, apply and verify need none of it"
    )]
    NoWeights,
    /// There is no such node with memory.
    #[error("there is no node {node} with memory: those that have some are {}", list(.have))]
    NoNode {
        /// the requested node
        node: u32,
        /// those that have memory
        have: Vec<u32>,
    },
    /// The kernel has no automatic mode.
    #[error(
        "this kernel has no automatic weights (Linux 6.16 has): isotherm interleave show tells what they would be, if firmware tells of bandwidth"
    )]
    NoAuto,
    /// Firmware reports no bandwidth.
    #[error(
        "the kernel has no automatic weights here: firmware tells of no bandwidth (HMAT, CDAT). isotherm interleave probe measures it"
    )]
    NoBandwidth,
    /// A run of another isotherm holds other weights.
    #[error(
        "isotherm {owner} runs a command with the weights {theirs}, and weights are those of the whole machine: wait until it has ended, or use the same"
    )]
    InUse {
        /// pid of that isotherm
        owner: i32,
        /// as `0=9,1=1`
        theirs: String,
    },
    /// Another program has changed weights while a run holds them.
    #[error(
        "the weights of nodes {} are not those that you ask for, and isotherm runs a command, with which they stay: wait until it has ended, or set them back",
        list(.nodes)
    )]
    Changed {
        /// nodes with changed weights
        nodes: Vec<u32>,
    },
    /// The state file cannot be used.
    #[error("cannot {what} {path}, which tells what isotherm has changed: {source}. It takes root")]
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
        "{path} notes what weights were before isotherm has changed them, and this isotherm does not understand it: {text}. One of the version that wrote it can put them back (isotherm interleave set restore). If weights are as you want them (isotherm interleave show), remove the file"
    )]
    Note {
        /// path of the file
        path: PathBuf,
        /// first characters of the file
        text: String,
    },
    /// The cpuset of the process does not allow the node.
    #[error(
        "process {pid} may use memory of the nodes {} only, and not of node {node}: its cpuset says so",
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
        "which pages belong to one large folio is not told (/proc/kpageflags): it takes root, and CAP_SYS_ADMIN. Without that, parts of a folio would be moved against each other"
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
    #[error("the kernel does not take the memory policy: {0}")]
    Policy(io::Error),
    /// isotherm cannot allocate memory on a node.
    #[error("{mib} MiB on node {node} cannot be had to measure with: {source}")]
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
        Some(libc::EPERM) => ". It takes CAP_SYS_NICE for processes of other users: run as root",
        _ => "",
    }
}
