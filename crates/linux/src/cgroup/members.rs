//! The processes of a group.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Cgroup, CgroupError, PROCS, read_up_to};

/// Maximum number of groups below a group.
const MAX_GROUPS: usize = 10_000;
/// Maximum number of processes in all of them.
const MAX_PROCESSES: usize = 10_000;

impl Cgroup {
    /// The processes of the group and of the groups below it, by their pids in our pid namespace. Processes
    /// that are not visible in that namespace are left out.
    ///
    /// # Errors
    /// If the group is gone or may not be read, or has more than 10,000 groups or processes.
    pub fn processes(&self) -> Result<BTreeSet<i32>, CgroupError> {
        let mut pids = BTreeSet::new();
        let mut groups = vec![self.dir.clone()];
        let mut seen = 0;
        while let Some(dir) = groups.pop() {
            seen += 1;
            match read_up_to(&dir.join(PROCS), 1 << 20) {
                // The kernel shows a process that is not visible in our namespace as 0.
                Ok(text) => pids
                    .extend(text.lines().filter_map(|l| l.parse().ok()).filter(|&p: &i32| p > 0)),
                Err(e) if dir == self.dir => {
                    if e.raw_os_error() == Some(libc::EOPNOTSUPP) {
                        return Err(CgroupError::Threaded(self.dir.clone()));
                    }
                    return Err(self.failed("read", PROCS, "it is not a control group", e));
                }
                // The group was removed since; or it is threaded, and its processes are in a group above it.
                Err(_) => {}
            }
            groups.extend(below(&dir));
            let too_many =
                |limit, what| CgroupError::TooMany { path: self.dir.clone(), limit, what };
            if seen + groups.len() > MAX_GROUPS {
                return Err(too_many(MAX_GROUPS, "groups"));
            }
            if pids.len() > MAX_PROCESSES {
                return Err(too_many(MAX_PROCESSES, "processes"));
            }
        }
        Ok(pids)
    }
}

/// The groups directly below a group.
pub(super) fn below(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path())
}
