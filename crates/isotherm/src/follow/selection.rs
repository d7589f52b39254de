//! The selection of the processes to watch.

use std::path::PathBuf;

/// Which processes to watch: by pid, by control group or name, or as a command to start.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Selection {
    /// these processes
    pub pids: Vec<i32>,
    /// processes in these control groups and in the groups below them, as they join and leave
    pub cgroups: Vec<PathBuf>,
    /// processes of these names, as in `/proc/PID/comm`, as they start and end
    pub comms: Vec<String>,
    /// all processes, as they start and end
    pub all: bool,
    /// the children of the selected processes as well
    pub children: bool,
    /// never processes of these names
    pub except_comms: Vec<String>,
    /// never processes in these control groups and in those below them
    pub except_cgroups: Vec<PathBuf>,
    /// never these pids
    pub except_pids: Vec<i32>,
    /// a command to start; its children are watched too; empty: none
    pub command: Vec<String>,
    /// Names and control groups that do not exist yet are waited for.
    pub awaited: bool,
}

impl Selection {
    /// Selects one process.
    #[must_use]
    pub fn pid(pid: i32) -> Self {
        Selection { pids: vec![pid], ..Selection::default() }
    }

    /// Whether it selects no process.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.command.is_empty() && !self.may_grow()
    }

    /// Whether it selects processes that start later and are not children of a started command.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.all || !self.cgroups.is_empty() || !self.comms.is_empty()
    }

    /// Whether it selects all processes of control groups, and no others.
    #[must_use]
    pub fn is_of_whole_groups(&self) -> bool {
        let single = !self.pids.is_empty() || !self.comms.is_empty() || !self.command.is_empty();
        (self.all || !self.cgroups.is_empty()) && !single && !self.excludes()
    }

    /// Whether it excludes processes.
    #[must_use]
    pub fn excludes(&self) -> bool {
        !self.except_comms.is_empty()
            || !self.except_cgroups.is_empty()
            || !self.except_pids.is_empty()
    }

    /// Whether it may select processes beyond the given pids.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.command.is_empty() || self.children || self.may_grow()
    }

    /// Whether it may select processes of other users that are not known at the start.
    #[must_use]
    pub fn may_be_strangers(&self) -> bool {
        self.children || self.may_grow()
    }
}
