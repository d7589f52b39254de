//! Why a kdamond of ours cannot be had.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::AttrsError;

use super::availability::Holder;
use super::sysfs::{Operations, SysfsError};
use super::trace::TraceError;
use crate::ops::AttachError;
use crate::proc::{MGLRU, ProcError};

/// Why a kdamond of ours cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamonError {
    /// the kernel has none
    #[error("kernel DAMON is not to be had: {0}")]
    Absent(String),
    /// somebody else
    #[error(
        "kernel DAMON belongs to {0}. isotherm leaves it alone: end that first, or look in another way"
    )]
    Held(Holder),
    /// EBUSY at `on`
    #[error(
        "kernel DAMON is busy: it did not take 'on' (EBUSY), so another user of it, as a module of the kernel, is running. isotherm leaves it alone"
    )]
    Busy,
    /// EINVAL at `on`
    #[error(
        "kernel DAMON did not start: {source}. A target may have ended, or the kernel does not take these attributes"
    )]
    NotStarted {
        /// what the kernel said
        source: SysfsError,
    },
    /// an operations set
    #[error("kernel DAMON here cannot monitor by {}: it takes {}", .0.name(), config(*.0))]
    NoOperations(Operations),
    /// page cache whose reads are not noted, and no filter for it alone
    #[error(
        "MGLRU is on ({MGLRU}), so that kernel DAMON does not see reads of page cache that no process maps, and this kernel cannot leave that alone but by paging out anonymous memory only, which is to be left alone too. Leave out --skip-anon, take Linux 6.15 or later, or turn MGLRU off: echo n >{MGLRU}"
    )]
    CacheUnseen,
    /// nothing to watch
    #[error("kernel DAMON has nothing to watch: give at least one target, or range")]
    NoTargets,
    /// only processes follow each other
    #[error("targets of a kdamond can only be changed if they are processes")]
    FixedTargets,
    /// attributes
    #[error(transparent)]
    Attrs(#[from] AttrsError),
    /// tuning
    #[error(
        "a sampling interval of {sample:?} is not within those that it may be tuned to, {min:?} to {max:?}: begin with one that is (--sample {min:?})"
    )]
    OutOfGoal {
        /// to begin with
        sample: Duration,
        /// at least
        min: Duration,
        /// at most
        max: Duration,
    },
    /// steps of addresses
    #[error("a step of an address stands for a power of two of bytes, not for {0}: try 4096")]
    AddrUnit(u64),
    /// the state file
    #[error(
        "cannot {what} {path}, which tells that a kdamond is isotherm's: {source}. It takes root"
    )]
    State {
        /// what failed
        what: &'static str,
        /// which
        path: PathBuf,
        /// why
        source: io::Error,
    },
    /// a process
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// from sysfs
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// from tracefs
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// from `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// ended from outside
    #[error("the kdamond of isotherm has been stopped or taken over by somebody else")]
    Stopped,
    /// no results
    #[error(
        "the kdamond of isotherm runs and tells nothing (results dropped as events were lost: {dropped})"
    )]
    Silent {
        /// how many
        dropped: u64,
    },
}

fn config(operations: Operations) -> &'static str {
    match operations {
        Operations::Paddr => "CONFIG_DAMON_PADDR",
        _ => "CONFIG_DAMON_VADDR",
    }
}
