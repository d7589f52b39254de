//! Processes that are watched by what they are, as they come and go: members of control groups, those
//! of a name, or all.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use isotherm_linux::cgroup::{Cgroup, CgroupError};
use isotherm_linux::proc;
use tracing::info;

use super::selection::Selection;
use crate::ROOT;

/// What the processes are, with those in control groups below.
#[derive(Debug, Default)]
pub struct Members {
    groups: Vec<Cgroup>,
    /// groups that are not there yet
    missing: Vec<PathBuf>,
    /// whether they are waited for, all of them
    awaited: bool,
    /// as in `/proc/PID/comm`
    names: Vec<String>,
    all: bool,
}

impl Members {
    /// Those asked for. Nobody need be in a group yet. A name that nobody has and a group that is not
    /// there are errors, as they may be misspelt, unless they are to be waited for.
    pub fn find(o: &Selection) -> Result<Self> {
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
                bail!("no process is called `{name}`: ps -eo comm shows their names");
            }
            info!("no process is called `{name}` yet: waiting for one");
        }
        Ok(members)
    }

    /// Looks for the groups that are not there yet; why one still is not.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.missing.is_empty() && !self.by_name()
    }

    fn by_name(&self) -> bool {
        self.all || !self.names.is_empty()
    }

    /// Whether somebody may come yet.
    pub fn may_come(&self) -> bool {
        let may_return = self.awaited && !self.is_empty();
        may_return || self.by_name() || self.groups.iter().any(Cgroup::exists)
    }

    /// Those that are asked for by name, or as all there are. Who is `known` is no thread of the kernel:
    /// finding that out is most of the work.
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

    /// Who they are now, but for isotherm itself. A group that has been removed has nobody.
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

    /// The same, with groups that were not there before; `None` if it cannot be told.
    pub fn now_or_since(&mut self, known: impl Fn(i32) -> bool) -> Option<BTreeSet<i32>> {
        let _ = self.seek();
        self.now(known).ok()
    }
}
