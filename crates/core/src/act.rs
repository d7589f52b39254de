//! Actions on memory: the interface through which schemes act.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{OpsError, TargetId};
use crate::heat::Heat;
use crate::range::AddrRange;

/// An action on memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// move to swap, or write back and drop
    PageOut,
    /// deactivate: reclaim takes it first
    Cold,
    /// read ahead, or read back from swap
    WillNeed,
    /// make huge pages
    HugePage,
    /// split huge pages
    NoHugePage,
    /// move up in the lists of reclaim
    LruPrio,
    /// move down in the lists of reclaim
    LruDeprio,
    /// move hot memory to other nodes
    MigrateHot(Destinations),
    /// move cold memory to other nodes
    MigrateCold(Destinations),
    /// count only
    Stat,
}

impl Action {
    /// The name in schemes and logs, which is the kernel's.
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

    /// The heat that the action is for: hot, cold, or `None` for any.
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

/// Destinations of a migration: at least one node. Several nodes share the pages by weight and page number,
/// as weighted interleave does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destinations(pub Arc<[Destination]>);

/// A node and its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Destination {
    /// number of the node
    pub node: u32,
    /// pages that the node gets in each round; at least 1
    pub weight: u32,
}

/// Whether an operations set supports an [`Action`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// yes
    Yes,
    /// No, with the reason, until someone changes that: [`Act::apply`] may still be called, and counts
    /// failures.
    NotNow(String),
    /// not on this machine, with the reason
    No(String),
}

/// Limits for one application of an [`Action`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// maximum number of bytes
    pub bytes: u64,
    /// maximum time
    pub time: Duration,
}

/// A request to apply an [`Action`].
#[derive(Debug, Clone)]
pub struct Work<'a> {
    /// the action
    pub action: &'a Action,
    /// the target
    pub target: TargetId,
    /// the page-aligned range
    pub range: AddrRange,
    /// its limits
    pub budget: Budget,
    /// which pages of the range; all if empty
    pub filters: &'a [PageFilter],
    /// Second look: an action for untouched memory skips pages that are touched within this time before the
    /// action. Zero: no second look.
    pub recheck: Duration,
    /// the reason, for tracing
    pub cause: Option<Cause<'a>>,
}

/// The reason for a [`Work`].
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    /// name of the scheme
    pub scheme: &'a str,
    /// first-touch rate of the region, mean over its pages, in Hz
    pub hz: f64,
    /// time for which the region has kept its heat
    pub age: Duration,
    /// is notified when the work begins
    pub begins: Option<&'a dyn WorkObserver>,
}

/// Is notified of each [`Work`] before it begins.
pub trait WorkObserver: std::fmt::Debug {
    /// `work` begins next.
    fn begins(&self, work: &Work<'_>);
}

impl Work<'_> {
    /// Notifies [`Cause::begins`] that this work is next. An operations set that may leave works for later
    /// must call this.
    pub fn begin(&self) {
        if let Some(observer) = self.cause.and_then(|cause| cause.begins) {
            observer.begins(self);
        }
    }
}

/// Distinguishes pages by properties that only the operations set can see. The first filter that matches a
/// page decides. A page that matches no filter is allowed if the last filter rejects, and rejected otherwise.
/// This is the rule of the kernel's filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFilter {
    /// the property
    pub kind: PageKind,
    /// whether the filter matches pages with the property, or pages without it
    pub matching: bool,
    /// whether matching pages are allowed
    pub allow: bool,
}

/// The property of a page in a [`PageFilter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// part of a folio whose size is within these limits
    HugePage {
        /// minimum in bytes
        min: u64,
        /// maximum in bytes
        max: u64,
    },
    /// on this node
    Node(u32),
    /// its accessed bit is set
    Young,
    /// touched, or possibly touched, within this time before the action
    Touched {
        /// length of the time
        within: Duration,
    },
}

/// The result of a [`Work`]. A work proceeds from the start of its range. The bytes that are neither in
/// `tried` nor in `passed` lie at the end of the range: the budget ended before they were reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// bytes on which the action was tried
    pub tried: u64,
    /// bytes on which the action succeeded
    pub applied: u64,
    /// Bytes that were skipped on purpose: touched since then, unknown, rejected by a filter, or already in
    /// the wanted state (not resident, already on the node). They are not in `tried`.
    pub passed: u64,
    /// time spent, without the wait of the second look
    pub took: Duration,
    /// why some bytes failed, if there is one main reason
    pub failure: Option<Failure>,
}

/// The reason why an action failed on some of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// the target ended, or has unmapped the memory
    Gone,
    /// swap is full or missing, or the node is full
    NoRoom,
    /// the kernel skipped the page: locked, pinned, under writeback, or just touched
    Busy,
    /// not permitted
    Refused,
}

/// Applies actions.
pub trait Act {
    /// Whether this operations set supports `action`.
    fn supports(&self, action: &Action) -> Support;

    /// Applies `works` in this order, each within its budget, and appends the result of each to `out`. It may
    /// stop before the last work if the earlier ones have used the time of all; then it calls [`Work::begin`]
    /// of each work that it begins. It never acts on memory whose accesses cannot be observed.
    ///
    /// # Errors
    /// If an action is not supported, a target is unknown, or a range is not page-aligned. `out` then
    /// contains the results of the earlier works.
    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError>;

    /// Requests that the kernel reclaims up to `bytes` of page cache of the control group `group` (a path as in
    /// [`Metrics::cgroups`](crate::scheme::Metrics::cgroups)), and no anonymous memory. Less is a normal answer. `None`
    /// if this is not possible.
    fn reclaim_cache(&mut self, group: &str, bytes: u64) -> Option<Applied> {
        let _ = (group, bytes);
        None
    }
}
