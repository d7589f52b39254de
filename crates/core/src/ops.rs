//! The lower seam: what an operations set brings.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Cost, OpsError, TargetId};
use crate::range::AddrRange;
use crate::survey::Survey;
use crate::time::Nanos;
use crate::unknown::{Pages, Unknown};

/// What a mapping is made of.
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
    /// what the kernel or a driver put there
    Special,
    /// physical memory, whoever uses it
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

    /// Its name in records and logs.
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
    /// where
    pub range: AddrRange,
    /// what it is made of
    pub kind: MappingKind,
    /// as in `/proc/PID/maps`: a path, `[heap]`, `[stack]`; empty for anonymous memory; of physical
    /// memory the node and the zone: `node 0 Normal`
    pub name: Arc<str>,
    /// why its accesses cannot be seen, if that holds for all of it
    pub unknown: Option<Unknown>,
}

/// A question: which pages of this range were accessed?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// whose
    pub target: TargetId,
    /// Page-aligned, within one mapping, at most 2 MiB, and not across a multiple of 2 MiB.
    pub range: AddrRange,
    /// Clear the accessed bits that are found set, so that a later look tells what was accessed
    /// since.
    pub clear: bool,
}

/// The answer to an [`Ask`]. Pages are base pages; a huge page counts as the base pages of it that
/// lie in the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Pages in the range. Zero means that the look was dropped and says nothing.
    pub pages: u32,
    /// Pages that are resident and whose accesses can be seen.
    pub present: u32,
    /// Pages of `present` whose accessed bit was set.
    pub young: u32,
    /// Resident pages whose accesses cannot be seen, by reason.
    pub unknown: Pages<u32>,
    /// When the bits were read.
    pub read_at: Nanos,
    /// When clearing ended; equals `read_at` if nothing was asked to be cleared.
    pub cleared_at: Nanos,
    /// Since when accesses count, if that is not the last clear that was asked for: some ways to
    /// look clear all memory at once, at times of their own. Such an answer is final; looking at the
    /// window again tells nothing new.
    pub since: Option<Nanos>,
    /// With `since`: pages of `present` that were not accessed before `read_at`, but afterwards.
    pub later: u32,
}

/// Whether a target is still what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// the same address space as before
    Alive,
    /// it has a new address space (`exec`): what was known of the old one is void
    Replaced,
    /// it ended
    Gone,
}

/// What is mapped.
pub trait Space {
    /// Replaces `out` by the mappings of `target` that it may access: sorted, disjoint,
    /// page-aligned. A target that is gone leaves `out` empty.
    ///
    /// # Errors
    /// If the target is unknown or its mappings cannot be read.
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError>;

    /// CPU time that the target has used since it began, if that can be told.
    fn ran(&mut self, target: TargetId) -> Option<Duration>;

    /// What the target and we have done to its memory so far; `None` if that cannot be told. Between two
    /// equal answers no accessed bit of the target was set, within the grain of its clock.
    fn activity(&mut self, target: TargetId) -> Option<Activity> {
        let _ = target;
        None
    }
}

/// What can have touched or changed the memory of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// as [`Space::ran`]
    pub ran: Duration,
    /// how often somebody has acted on it by this operations set
    pub acts: u64,
}

/// Which pages were accessed.
pub trait Look {
    /// Appends one [`Seen`] for each ask, in their order. A window that cannot be answered for is
    /// a dropped one ([`Seen::default`]), not an error.
    ///
    /// # Errors
    /// If looking at all has become impossible.
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError>;

    /// The same memory read as a whole, by those that can.
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
