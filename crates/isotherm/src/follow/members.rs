//! Processes that are watched while they match: members of control groups, processes of a given name, or all
//! processes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use isotherm_linux::cgroup::{Cgroup, CgroupError};
use isotherm_linux::proc;
use tracing::{info, warn};

use super::error::FollowError;
use super::selection::Selection;
use crate::ROOT;

/// The criteria by which processes are members. A control group includes the groups below it.
#[derive(Debug, Default)]
pub struct Members {
    groups: Vec<Cgroup>,
    /// groups that do not exist yet
    missing: Vec<PathBuf>,
    /// whether to wait for groups and names that do not exist yet
    awaited: bool,
    /// as in `/proc/PID/comm`
    names: Vec<String>,
    all: bool,
    /// whether they could not be read the last time
    unreadable: bool,
}

impl Members {
    /// The criteria that the options give. A group may be empty. A name that no process has and a group that
    /// does not exist are errors, because they may be misspelt, unless `awaited` is set.
    pub fn find(o: &Selection) -> Result<Self, FollowError> {
        let mut members = Members {
            missing: o.cgroups.clone(),
            awaited: o.awaited,
            names: o.comms.iter().map(|name| proc::cut_comm(name)).collect(),
            all: o.all,
            ..Members::default()
        };
        if let (Some(e), false) = (members.seek(), o.awaited) {
            return Err(e.into());
        }
        for path in &members.missing {
            let path = path.display();
            info!("there is no control group {path} yet: waiting for it");
        }
        let running: BTreeSet<String> = members
            .named(|_| false)
            .filter_map(|pid| proc::comm(ROOT.as_ref(), pid).ok())
            .collect();
        for name in members.names.iter().filter(|name| !running.contains(*name)) {
            if !o.awaited {
                return Err(FollowError::NoName(name.clone()));
            }
            info!("no process is called `{name}` yet: waiting for one");
        }
        Ok(members)
    }

    /// Looks again for the groups that did not exist. Returns the reason for the first one that is still
    /// missing.
    fn seek(&mut self) -> Option<CgroupError> {
        let mut why = None;
        let groups = &mut self.groups;
        self.missing.retain(|path| match Cgroup::find(ROOT.as_ref(), path) {
            Ok(group) => {
                groups.push(group);
                false
            }
            Err(e) => {
                why.get_or_insert(e);
                true
            }
        });
        why
    }

    /// Whether there is no criterion.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.missing.is_empty() && !self.by_name()
    }

    fn by_name(&self) -> bool {
        self.all || !self.names.is_empty()
    }

    /// Whether a new member may still appear.
    pub fn may_come(&self) -> bool {
        let may_return = self.awaited && !self.is_empty();
        may_return || self.by_name() || self.groups.iter().any(Cgroup::exists)
    }

    /// Processes that match by name, or all processes. A `known` pid is not a kernel thread; reading that from
    /// `/proc` is most of the work.
    fn named(&self, known: impl Fn(i32) -> bool) -> impl Iterator<Item = i32> {
        let pids = if self.by_name() { proc::pids(ROOT.as_ref()) } else { Vec::new() };
        let is_called =
            |pid| proc::comm(ROOT.as_ref(), pid).is_ok_and(|comm| self.names.contains(&comm));
        let is_user = |pid| proc::stat(ROOT.as_ref(), pid).is_ok_and(|stat| !stat.kernel_thread);
        pids.into_iter().filter(move |&pid| match self.all {
            true => known(pid) || is_user(pid),
            false => is_called(pid) && (known(pid) || is_user(pid)),
        })
    }

    /// The current members, except for isotherm itself. A group that has been removed has no members.
    pub fn now(&self, known: impl Fn(i32) -> bool) -> Result<BTreeSet<i32>, CgroupError> {
        let mut members: BTreeSet<i32> = self.named(known).collect();
        for group in &self.groups {
            match group.processes() {
                Err(CgroupError::Removed(_)) => {}
                found => members.extend(found?),
            }
        }
        members.remove(&i32::try_from(std::process::id()).unwrap_or(0));
        Ok(members)
    }

    /// Like [`Members::now`], including groups that were created since; `None` if they cannot be read. The log
    /// says so once.
    pub fn now_or_since(&mut self, known: impl Fn(i32) -> bool) -> Option<BTreeSet<i32>> {
        let _ = self.seek();
        let members = self.now(known);
        if let (Err(e), false) = (&members, self.unreadable) {
            warn!("{e}. Until then, no process joins or leaves, in any group.");
        }
        self.unreadable = members.is_err();
        members.ok()
    }
}
