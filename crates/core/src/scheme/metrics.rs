//! What goals and watermarks go by: figures that the caller reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::call::TargetId;
use crate::survey::Pressure;

/// Figures of the machine, of groups of processes, and of the user's own. What cannot be read is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// of the machine
    pub machine: Figures,
    /// of each group that a goal names: a cgroup by its path, or whatever else the caller calls so
    pub groups: BTreeMap<Arc<str>, Figures>,
    /// the cgroup of each target, by its path
    pub cgroups: BTreeMap<TargetId, Arc<str>>,
    /// the process that each target is, if it is one
    pub processes: BTreeMap<TargetId, Process>,
    /// free memory of the machine, of 10,000
    pub free_bp: Option<u32>,
    /// Unusable free space index of the machine for huge pages, of 10,000: the share of free memory
    /// that lies in blocks too small for one.
    pub fragmentation_bp: Option<u32>,
    /// figures of the user, by the name that goals give them
    pub user: BTreeMap<Arc<str>, f64>,
}

/// What filters tell a process by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// its pid
    pub pid: i32,
    /// its name, as in `/proc/PID/comm`
    pub comm: Arc<str>,
}

/// Figures of the machine or of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// counted since some fixed time; only differences are used
    pub pressure: Option<Pressure>,
    /// bytes in memory
    pub resident: Option<u64>,
    /// bytes that were touched lately
    pub working_set: Option<u64>,
}

/// Whom a figure is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// the machine
    Machine,
    /// a group of [`Metrics::groups`]
    Group(Arc<str>),
}

impl Metrics {
    /// The figures of `scope`, if there are any.
    #[must_use]
    pub fn of(&self, scope: &Scope) -> Option<&Figures> {
        match scope {
            Scope::Machine => Some(&self.machine),
            Scope::Group(name) => self.groups.get(name),
        }
    }
}
