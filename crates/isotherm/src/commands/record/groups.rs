//! Control groups whose processes are watched.

use std::collections::BTreeSet;
use std::path::PathBuf;

use isotherm_core::Nanos;
use isotherm_linux::cgroup::{Cgroup, CgroupError};
use isotherm_linux::sys;

/// Some control groups, with those below them.
#[derive(Debug, Default)]
pub struct Groups {
    groups: Vec<Cgroup>,
    next: Nanos,
}

/// Asking who is in them takes at most one part in so many of the time.
const SHARE: u32 = 50;

impl Groups {
    /// Those at `paths`, as [`Cgroup::find`] has it.
    pub fn find(paths: &[PathBuf]) -> Result<Self, CgroupError> {
        let groups = paths.iter().map(|path| Cgroup::find("/".as_ref(), path));
        Ok(Groups { groups: groups.collect::<Result<_, _>>()?, next: Nanos(0) })
    }

    /// Whether somebody may come yet.
    pub fn any_exists(&self) -> bool {
        self.groups.iter().any(Cgroup::exists)
    }

    /// Who is in them now, but for isotherm itself. One that has been removed has nobody.
    pub fn members(&self) -> Result<BTreeSet<i32>, CgroupError> {
        let mut members = BTreeSet::new();
        for group in &self.groups {
            match group.processes() {
                Err(CgroupError::Removed(_)) => {}
                found => members.extend(found?),
            }
        }
        members.remove(&i32::try_from(std::process::id()).unwrap_or(0));
        Ok(members)
    }

    /// The same, unless there are no groups, or it was asked for just now, or it cannot be told.
    pub fn members_if_due(&mut self) -> Option<BTreeSet<i32>> {
        let begin = sys::monotonic();
        if self.groups.is_empty() || begin < self.next {
            return None;
        }
        let members = self.members().ok();
        self.next = begin + sys::monotonic().since(begin) * SHARE;
        members
    }
}
