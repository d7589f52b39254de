//! The metrics for goals and watermarks, which the caller reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::price::Prices;
use crate::call::TargetId;
use crate::survey::Pressure;

/// Metrics of the machine, of groups of processes, and of the user. A metric that cannot be read is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// of the machine
    pub machine: MemoryMetrics,
    /// of each group that a goal names: a cgroup by its path, or another name of the caller's choice
    pub groups: BTreeMap<Arc<str>, MemoryMetrics>,
    /// the path of each target's cgroup
    pub cgroups: BTreeMap<TargetId, Arc<str>>,
    /// the process of each target, if it is one
    pub processes: BTreeMap<TargetId, Process>,
    /// major faults of each target so far
    pub major_faults: BTreeMap<TargetId, u64>,
    /// the page cache of the targets' cgroups, by path, where [`Act::reclaim_cache`](crate::Act::reclaim_cache) works
    pub caches: BTreeMap<Arc<str>, GroupCache>,
    /// free memory of the machine, of 10,000
    pub free_bp: Option<u32>,
    /// Unusable free space index of the machine for huge pages, of 10,000: the share of free memory in blocks
    /// that are smaller than a huge page.
    pub fragmentation_bp: Option<u32>,
    /// what it costs to take memory away, and to bring it back
    pub prices: Prices,
    /// metrics of the user, by the name in goals
    pub user: BTreeMap<Arc<str>, f64>,
}

/// The properties of a process that filters check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// pid of the process
    pub pid: i32,
    /// name of the process, as in `/proc/PID/comm`
    pub comm: Arc<str>,
}

/// The page cache of a group that no process maps, so that it has no idle ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCache {
    /// bytes
    pub bytes: u64,
    /// pages of files so far that were read again after the kernel had reclaimed them
    pub refaults: u64,
}

/// Metrics of the machine or of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryMetrics {
    /// counters since a fixed time; only differences are used
    pub pressure: Option<Pressure>,
    /// resident bytes
    pub resident: Option<u64>,
    /// recently touched bytes
    pub working_set: Option<u64>,
}

/// The scope of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// the whole machine
    Machine,
    /// a group in [`Metrics::groups`]
    Group(Arc<str>),
}

impl Metrics {
    /// The metrics of `scope`; `None` if there are none.
    #[must_use]
    pub fn of(&self, scope: &Scope) -> Option<&MemoryMetrics> {
        match scope {
            Scope::Machine => Some(&self.machine),
            Scope::Group(name) => self.groups.get(name),
        }
    }
}
