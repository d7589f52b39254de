//! Errors of isotherm's kdamond.

use std::io;
use std::path::PathBuf;

use isotherm_core::AttrsError;

use super::availability::DamonOwner;
use super::sysfs::{Operations, SysfsError};
use super::trace::TraceError;
use crate::ops::AttachError;
use crate::proc::{MGLRU, ProcError};

/// The reason why isotherm cannot use a kdamond.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamonError {
    /// The kernel has no DAMON, or isotherm cannot use it.
    #[error("kernel DAMON is not available: {0}")]
    Absent(String),
    /// DAMON has another user.
    #[error(
        "kernel DAMON belongs to {0}. isotherm leaves it alone: end that first, or choose another --look"
    )]
    Held(DamonOwner),
    /// The kernel returned EBUSY when the kdamond was started.
    #[error(
        "kernel DAMON is busy (EBUSY): it has another user, for example a kernel module. \
         isotherm leaves it alone: end that first, or choose another --look"
    )]
    Busy,
    /// The kernel refused to start the kdamond.
    #[error(
        "kernel DAMON did not start: {source}. A target may have ended, or the kernel rejects \
         these attributes"
    )]
    NotStarted {
        /// error of the kernel
        source: SysfsError,
    },
    /// The kernel lacks this operations set.
    #[error("kernel DAMON here cannot monitor by {}: this requires {}", .0.name(), config(*.0))]
    NoOperations(Operations),
    /// The kernel does not record reads of page cache, and has no filter for it.
    #[error(
        "MGLRU is on ({MGLRU}), so kernel DAMON does not observe reads of page cache that no \
         process maps. To leave such memory alone, this kernel can page out only anonymous \
         memory, which --skip-anon excludes. Leave out --skip-anon, use Linux 6.15 or later, or \
         turn MGLRU off: echo n >{MGLRU}"
    )]
    CacheUnseen,
    /// There is no memory to watch.
    #[error("kernel DAMON has nothing to watch: give at least one target, or range")]
    NoTargets,
    /// Targets can be changed only if they are whole processes.
    #[error("targets of a kdamond can only be changed if they are processes")]
    FixedTargets,
    /// The attributes are invalid.
    #[error(transparent)]
    Attrs(#[from] AttrsError),
    /// The address unit is invalid.
    #[error("an address unit must be a power of two in bytes, not {0}: try 4096")]
    AddrUnit(u64),
    /// The state file cannot be used.
    #[error(
        "cannot {what} {path}, which marks a kdamond as isotherm's: {source}. This requires root"
    )]
    State {
        /// failed operation
        what: &'static str,
        /// the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// A process cannot be watched.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// error of sysfs
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// error of tracefs
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// error of reading `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// Another user has stopped or replaced the kdamond.
    #[error("another program has stopped or taken over the kdamond of isotherm")]
    Stopped,
    /// The kdamond delivers no results.
    #[error(
        "the kdamond of isotherm runs but reports nothing (results dropped because events were \
         lost: {dropped})"
    )]
    Silent {
        /// number of dropped results
        dropped: u64,
    },
}

fn config(operations: Operations) -> &'static str {
    match operations {
        Operations::Paddr => "CONFIG_DAMON_PADDR",
        _ => "CONFIG_DAMON_VADDR",
    }
}
