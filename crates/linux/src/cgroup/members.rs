//! Who is in a group.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Cgroup, CgroupError, PROCS, read_up_to};

/// Groups below one at most.
const MAX_GROUPS: usize = 10_000;
/// Processes in all of them at most.
const MAX_PROCESSES: usize = 10_000;

impl Cgroup {
    /// The processes of the group and of those below it, by their pids in the pid namespace that we
    /// are in. Those of which we see nothing there are left out.
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
                // A process of a namespace that we do not see is 0.
                Ok(text) => pids
                    .extend(text.lines().filter_map(|l| l.parse().ok()).filter(|&p: &i32| p > 0)),
                Err(e) if dir == self.dir => {
                    if e.raw_os_error() == Some(libc::EOPNOTSUPP) {
                        return Err(CgroupError::Threaded(self.dir.clone()));
                    }
                    return Err(self.failed("read", PROCS, "it is no control group", e));
                }
                // It was removed meanwhile; or it is threaded, and its processes are in one above.
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

fn below(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path())
}
