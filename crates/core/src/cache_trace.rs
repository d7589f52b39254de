//! Sampled accesses to the page cache: each access to a few pages, in order.

use crate::call::TargetId;
use crate::time::Nanos;

/// How a page was accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheAccessKind {
    /// by `read()` and similar calls
    Read,
    /// By `write()` and similar calls. Such a page need not be read from the disk.
    Written,
    /// A process has mapped it after a page fault.
    Mapped,
}

impl CacheAccessKind {
    /// All kinds.
    pub const ALL: [CacheAccessKind; 3] =
        [CacheAccessKind::Read, CacheAccessKind::Written, CacheAccessKind::Mapped];

    /// The word in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CacheAccessKind::Read => "read",
            CacheAccessKind::Written => "written",
            CacheAccessKind::Mapped => "mapped",
        }
    }
}

/// An access to a sampled page of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheAccess {
    /// the file
    pub target: TargetId,
    /// number of the page in the file
    pub page: u64,
    /// how it was accessed
    pub kind: CacheAccessKind,
    /// The page is in each sample of one page in 2^n, for n up to this. At least the sampling of the trace.
    pub rarity: u8,
}

/// All accesses to a sample of the pages of the watched files in an interval, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheTrace {
    /// begin of the interval
    pub since: Nanos,
    /// its end
    pub until: Nanos,
    /// One page in 2^this is sampled.
    pub sampling: u8,
    /// pages of each file that were read or mapped, sampled or not; a page counts for each access
    pub pages: Vec<(TargetId, u64)>,
    /// accesses to sampled pages that are missing, because they came faster than they could be recorded
    pub missing: u64,
    /// accesses to sampled pages
    pub accesses: Vec<CacheAccess>,
}
