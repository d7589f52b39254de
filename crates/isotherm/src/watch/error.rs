//! Failures of watching.

use isotherm_core::{AttrsError, OpsError};
use isotherm_linux::damon::DamonError;
use isotherm_linux::page_cache::PageCacheError;
use isotherm_linux::{IdleError, PhysicalError, WayError};

use super::KEEPS;
use crate::page_cache::ScopeError;
use crate::usage::UsageError;

/// Failures of watching memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// an option is invalid here
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// attributes are invalid here
    #[error("{0}")]
    Attrs(#[from] AttrsError),
    /// a way to look does not work here
    #[error("{0}")]
    Way(#[from] WayError),
    /// the kernel's monitor does not work here
    #[error("{0}")]
    Damon(#[from] DamonError),
    /// idle page tracking does not work here
    #[error("{0}")]
    Idle(#[from] IdleError),
    /// the ranges of physical memory cannot be read
    #[error("{0}")]
    Physical(#[from] PhysicalError),
    /// the files cannot be found
    #[error("{0}")]
    Files(#[from] ScopeError),
    /// the page cache cannot be read
    #[error("{0}")]
    PageCache(#[from] PageCacheError),
    /// a call of the operations set has failed
    #[error("{0}")]
    Ops(#[from] OpsError),
    /// BPF does not work here, for this reason
    #[error("files cannot be watched without BPF: {0}")]
    NoBpf(String),
    /// no accesses to files can be observed
    #[error(
        "no accesses to files can be observed here.\n  read(): {reads}\n  mappings: {mappings}"
    )]
    NoFileAccesses {
        /// why reads and writes cannot be counted
        reads: String,
        /// why mappings cannot be observed
        mappings: String,
    },
    /// accesses to files cannot be listed, for this reason
    #[error("accesses to files cannot be listed here, so that hit ratios are unknown: {0}")]
    NoTraces(String),
    /// physical memory cannot be observed
    #[error("physical memory cannot be observed here.\n  damon: {damon}\n  page_idle: {page_idle}")]
    NoPhysical {
        /// why the kernel's monitor cannot
        damon: String,
        /// why idle page tracking cannot
        page_idle: String,
    },
    /// the attributes of the kernel's monitor cannot change
    #[error("{KEEPS}")]
    Keeps,
}
