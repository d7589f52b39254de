//! Why nodes, weights or the placement of pages cannot be told or changed.

use std::io;
use std::path::PathBuf;

use crate::ops::AttachError;
use crate::proc::ProcError;
use crate::state::hint;

/// Why nodes, weights or the placement of pages cannot be told or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumaError {
    /// a file
    #[error("cannot {what} {path}: {source}{}", hint(.source))]
    File {
        /// read or write
        what: &'static str,
        /// which
        path: PathBuf,
        /// why
        source: io::Error,
    },
    /// a text
    #[error("{path} holds what isotherm does not understand: {text}")]
    Parse {
        /// which
        path: PathBuf,
        /// the text in question
        text: String,
    },
    /// no nodes
    #[error("this kernel tells of no nodes (CONFIG_NUMA): there is nothing to interleave")]
    NoNodes,
    /// no weights
    #[error(
        "this kernel has no weighted interleave (Linux 6.9 has): there are no weights to be set. Weights that are given to run, apply and verify need none of it"
    )]
    NoWeights,
    /// no node
    #[error("there is no node {node} with memory: those that have some are {}", list(.have))]
    NoNode {
        /// which
        node: u32,
        /// those that have memory
        have: Vec<u32>,
    },
    /// no automatic mode
    #[error(
        "this kernel has no automatic weights (Linux 6.16 has): isotherm interleave show tells what they would be, if firmware tells of bandwidth"
    )]
    NoAuto,
    /// no bandwidth
    #[error(
        "the kernel has no automatic weights here: firmware tells of no bandwidth (HMAT, CDAT). isotherm interleave probe measures it"
    )]
    NoBandwidth,
    /// somebody else's run
    #[error(
        "isotherm {owner} runs a command with the weights {theirs}, and weights are those of the whole machine: wait until it has ended, or use the same"
    )]
    InUse {
        /// who
        owner: i32,
        /// as `0=9,1=1`
        theirs: String,
    },
    /// somebody else's change
    #[error(
        "the weights of nodes {} are not those that you ask for, and isotherm runs a command, with which they stay: wait until it has ended, or set them back",
        list(.nodes)
    )]
    Changed {
        /// whose
        nodes: Vec<u32>,
    },
    /// the state file
    #[error("cannot {what} {path}, which tells what isotherm has changed: {source}. It takes root")]
    State {
        /// what failed
        what: &'static str,
        /// which
        path: PathBuf,
        /// why
        source: io::Error,
    },
    /// what the state file holds
    #[error(
        "{path} notes what weights were before isotherm has changed them, and this isotherm does not understand it: {text}. One of the version that wrote it can put them back (isotherm interleave set restore). If weights are as you want them (isotherm interleave show), remove the file"
    )]
    Note {
        /// which
        path: PathBuf,
        /// how it begins
        text: String,
    },
    /// cpuset
    #[error(
        "process {pid} may use memory of the nodes {} only, and not of node {node}: its cpuset says so",
        list(.allowed)
    )]
    NotAllowed {
        /// whose
        pid: i32,
        /// which
        node: u32,
        /// those that it may use
        allowed: Vec<u32>,
    },
    /// page frames
    #[error(
        "which pages belong to one large folio is not told (/proc/kpageflags): it takes root, and CAP_SYS_ADMIN. Without that, parts of a folio would be moved against each other"
    )]
    NoFrames,
    /// moving
    #[error("pages of process {pid} cannot be {what}: {source}{}", rights(.source))]
    Pages {
        /// asked for, or moved
        what: &'static str,
        /// whose
        pid: i32,
        /// why
        source: io::Error,
    },
    /// a policy
    #[error("the kernel does not take the memory policy: {0}")]
    Policy(io::Error),
    /// own memory
    #[error("{mib} MiB on node {node} cannot be had to measure with: {source}")]
    Memory {
        /// how much
        mib: u64,
        /// where
        node: u32,
        /// why
        source: io::Error,
    },
    /// a process
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// from `/proc`
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
