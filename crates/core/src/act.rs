//! What can be done to memory: the seam that schemes act through.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{OpsError, TargetId};
use crate::heat::Heat;
use crate::range::AddrRange;

/// What can be done to memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// move to swap, or write back and drop
    PageOut,
    /// deactivate: the first to go under pressure
    Cold,
    /// read ahead, or back from swap
    WillNeed,
    /// make huge pages
    HugePage,
    /// split huge pages
    NoHugePage,
    /// move up in the lists that reclaim goes by
    LruPrio,
    /// move down in them
    LruDeprio,
    /// move what is hot to other nodes
    MigrateHot(Destinations),
    /// move what is cold to other nodes
    MigrateCold(Destinations),
    /// only count
    Stat,
}

impl Action {
    /// As schemes and logs write it, which is as the kernel does.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Action::PageOut => "pageout",
            Action::Cold => "cold",
            Action::WillNeed => "willneed",
            Action::HugePage => "hugepage",
            Action::NoHugePage => "nohugepage",
            Action::LruPrio => "lru_prio",
            Action::LruDeprio => "lru_deprio",
            Action::MigrateHot(_) => "migrate_hot",
            Action::MigrateCold(_) => "migrate_cold",
            Action::Stat => "stat",
        }
    }

    /// Which memory it is for: the hot, the cold, or either.
    #[must_use]
    pub fn prefers(&self) -> Option<Heat> {
        match self {
            Action::PageOut
            | Action::Cold
            | Action::NoHugePage
            | Action::LruDeprio
            | Action::MigrateCold(_) => Some(Heat::Cold),
            Action::HugePage | Action::LruPrio | Action::MigrateHot(_) => Some(Heat::Hot),
            Action::WillNeed | Action::Stat => None,
        }
    }
}

/// Where to migrate to: at least one node. Several share by weight, page by page number, as weighted
/// interleave does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destinations(pub Arc<[Destination]>);

/// A node, and its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Destination {
    /// number of the node
    pub node: u32,
    /// pages that it gets of each round; at least 1
    pub weight: u32,
}

/// Whether an operations set can do an [`Action`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// yes
    Yes,
    /// No, and why, until somebody changes that: [`Act::apply`] may be asked, and counts what fails.
    NotNow(String),
    /// never here, and why
    No(String),
}

/// What an application of an [`Action`] may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// bytes at most
    pub bytes: u64,
    /// time at most
    pub time: Duration,
}

/// An [`Action`] to be done.
#[derive(Debug, Clone)]
pub struct Work<'a> {
    /// what
    pub action: &'a Action,
    /// to whom
    pub target: TargetId,
    /// where: page-aligned
    pub range: AddrRange,
    /// with how much
    pub budget: Budget,
    /// which pages of it; all where empty
    pub filters: &'a [PageFilter],
    /// What is touched within this time before the action is let alone, where the action is for what
    /// is not touched. Zero: nobody looks again.
    pub recheck: Duration,
    /// why, for who looks on
    pub cause: Option<Cause<'a>>,
}

/// Why a [`Work`] is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    /// whose turn it is
    pub scheme: &'a str,
    /// first-touch rate of the region, mean over its pages, in Hz
    pub hz: f64,
    /// how long the region has kept its heat
    pub age: Duration,
    /// who is told when it begins
    pub begins: Option<&'a dyn Begins>,
}

/// Is told of each [`Work`] that is come to, before anything is done.
pub trait Begins: std::fmt::Debug {
    /// This one is next.
    fn begins(&self, work: &Work<'_>);
}

impl Work<'_> {
    /// Tells who wants to be told that it is next. That is for an operations set to do which may leave
    /// works for another time.
    pub fn begin(&self) {
        if let Some(told) = self.cause.and_then(|cause| cause.begins) {
            told.begins(self);
        }
    }
}

/// Tells pages apart by what only the operations set can see of them. The first filter that a page
/// answers to decides; a page that answers to none is let through if the last filter rejects, and
/// else is not: the rule of the kernel's filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFilter {
    /// what it asks for
    pub kind: PageKind,
    /// whether a page answers to it by being of that kind, or by not being
    pub matching: bool,
    /// what becomes of a page that answers to it
    pub allow: bool,
}

/// What a [`PageFilter`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// part of a folio of at least and at most this many bytes
    HugePage {
        /// bytes
        min: u64,
        /// bytes
        max: u64,
    },
    /// on this node
    Node(u32),
    /// its accessed bit is set
    Young,
    /// touched within so long, or possibly touched
    Touched {
        /// before the action
        within: Duration,
    },
}

/// What a [`Work`] did. It goes over its range from the start on: what of the range is neither in
/// `tried` nor in `passed` lies at its end, and was not come to for want of budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// bytes it was tried on
    pub tried: u64,
    /// bytes it was done to
    pub applied: u64,
    /// Bytes that were let alone on purpose: touched since, unknown, held back by a filter, or as
    /// wanted before (not resident, on the node already). These are not in `tried`.
    pub passed: u64,
    /// how long that took, waiting for touches not counted
    pub took: Duration,
    /// why not all that was tried was done, if one reason stands out
    pub failure: Option<Failure>,
}

/// Why an action was not done to all that it was tried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// the target ended, or has unmapped it
    Gone,
    /// swap is full or missing, or the node is full
    NoRoom,
    /// the kernel let it be: locked, pinned, written back, just touched
    Busy,
    /// not permitted
    Refused,
}

/// What can be done.
pub trait Act {
    /// Whether `action` is possible here.
    fn supports(&self, action: &Action) -> Support;

    /// Does `works` in this order, each within its budget, and pushes to `out` what each did. It may stop
    /// before the last one, where those before it have taken the time of all: then it calls [`Work::begin`] of
    /// each that it comes to. Memory whose accesses cannot
    /// be seen is never acted on.
    ///
    /// # Errors
    /// If an action is not supported, a target is unknown, or a range is not page-aligned; what was
    /// done before that is in `out`.
    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError>;
}
