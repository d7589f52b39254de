//! The lower interface: the traits that an operations set implements.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Cost, OpsError, TargetId};
use crate::range::AddrRange;
use crate::survey::Survey;
use crate::time::Nanos;
use crate::unknown::{Unknown, UnknownPages};

/// The kind of memory in a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// private memory of the process without a file
    Anonymous,
    /// the `brk` area
    Heap,
    /// a thread's stack
    Stack,
    /// a file, or shared memory
    File,
    /// memory mapped by the kernel or a driver
    Special,
    /// physical memory of all users
    Physical,
}

impl MappingKind {
    /// All kinds.
    pub const ALL: [MappingKind; 6] = [
        MappingKind::Anonymous,
        MappingKind::Heap,
        MappingKind::Stack,
        MappingKind::File,
        MappingKind::Special,
        MappingKind::Physical,
    ];

    /// The name in records and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MappingKind::Anonymous => "anonymous",
            MappingKind::Heap => "heap",
            MappingKind::Stack => "stack",
            MappingKind::File => "file",
            MappingKind::Special => "special",
            MappingKind::Physical => "physical",
        }
    }
}

/// A range of addresses that the target may access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// address range
    pub range: AddrRange,
    /// kind of memory
    pub kind: MappingKind,
    /// As in `/proc/PID/maps`: a path, `[heap]`, `[stack]`; empty for anonymous memory. For physical memory
    /// the node and the zone: `node 0 Normal`
    pub name: Arc<str>,
    /// the reason why accesses to the whole mapping cannot be observed, if there is one
    pub unknown: Option<Unknown>,
}

/// Whether a mapping of this name, as in `/proc/PID/maps`, is shared memory, which goes to swap. Most of it looks like a
/// file.
#[must_use]
pub fn is_shared_memory(name: &str) -> bool {
    ["/dev/zero", "/dev/shm/", "/SYSV", "/memfd:", "[anon_shmem"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// A request for one look: which pages of this range were accessed?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// the target
    pub target: TargetId,
    /// Page-aligned, within one mapping, at most 2 MiB, and within one aligned 2 MiB block.
    pub range: AddrRange,
    /// Clear the accessed bits that are found set, so that a later look reports accesses since then.
    pub clear: bool,
}

/// The answer to an [`Ask`]. Counts are in base pages; a huge page counts as its base pages within the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Number of pages in the range. Zero means that the look was dropped and carries no information.
    pub pages: u32,
    /// Number of resident pages whose accesses can be observed.
    pub present: u32,
    /// Number of pages of `present` whose accessed bit was set.
    pub young: u32,
    /// Number of resident pages whose accesses cannot be observed, by reason.
    pub unknown: UnknownPages<u32>,
    /// Time when the bits were read.
    pub read_at: Nanos,
    /// Time when clearing ended; equal to `read_at` if no clear was requested.
    pub cleared_at: Nanos,
    /// Start of the time in which accesses count, if this is not the last requested clear: some ways to look
    /// clear all memory at once, at times of their own. Such an answer is final: another look at the window
    /// gives no new information.
    pub since: Option<Nanos>,
    /// With `since`: number of pages of `present` that were accessed not before `read_at`, but afterwards.
    pub later: u32,
}

/// Whether a target still has the same address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// the same address space as before
    Alive,
    /// it has a new address space (`exec`): knowledge of the old one is void
    Replaced,
    /// it ended
    Gone,
}

/// Reports the mapped memory of targets.
pub trait Space {
    /// Replaces `out` by the mappings that `target` may access: sorted, disjoint, page-aligned. For a target
    /// that is gone, `out` is empty.
    ///
    /// # Errors
    /// If the target is unknown or its mappings cannot be read.
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError>;

    /// CPU time that the target has used since it began; `None` if not available.
    fn ran(&mut self, target: TargetId) -> Option<Duration>;

    /// Activity of the target and of ourselves on its memory so far; `None` if not available. Between two
    /// equal answers, no accessed bit of the target was set, within the resolution of the target's clock.
    fn activity(&mut self, target: TargetId) -> Option<Activity> {
        let _ = target;
        None
    }
}

/// All activity that may have touched or changed the memory of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// see [`Space::ran`]
    pub ran: Duration,
    /// number of actions on the target through this operations set
    pub acts: u64,
}

/// Reports which pages were accessed.
pub trait Look {
    /// Appends one [`Seen`] for each ask, in their order. A window that cannot be read gives a dropped look
    /// ([`Seen::default`]), not an error.
    ///
    /// # Errors
    /// If no look at all is possible any more.
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError>;

    /// The interface for reading all memory at once, if the operations set supports it.
    fn survey(&mut self) -> Option<&mut dyn Survey> {
        None
    }
}

impl<T: Space + ?Sized> Space for Box<T> {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        (**self).mappings(target, out)
    }
    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        (**self).ran(target)
    }
    fn activity(&mut self, target: TargetId) -> Option<Activity> {
        (**self).activity(target)
    }
}

impl<T: Look + ?Sized> Look for Box<T> {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        (**self).look(asks, out)
    }
    fn survey(&mut self) -> Option<&mut dyn Survey> {
        (**self).survey()
    }
}
