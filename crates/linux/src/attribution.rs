//! Whose a process is, and what of it is not in memory.

use std::path::Path;

use isotherm_core::{Attribution, Nanos, TargetId};

use crate::cgroup;
use crate::proc::{self, ProcError};

/// The attribution of process `pid`, which is `target`, read at `at`.
///
/// # Errors
/// If there is no such process.
pub fn attribution(
    root: &Path,
    pid: i32,
    target: TargetId,
    at: Nanos,
) -> Result<Attribution, ProcError> {
    let stat = proc::stat(root, pid)?;
    Ok(Attribution {
        target,
        at,
        comm: stat.comm.into(),
        cgroup: cgroup::path_of(root, pid).unwrap_or_default().into(),
        swapped: proc::swapped(root, pid)?,
        major_faults: stat.major_faults,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_attribution_has_user_group_and_name() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/42");
        fs::create_dir_all(&dir).unwrap();
        let stat = "42 (a) b) S 7 42 42 0 -1 4194560 100 0 5 0 1 2 0 0 20 0 3 0 99 1000 10";
        for (name, text) in [
            ("stat", stat),
            ("status", "Name:\ta\nVmRSS:\t 12 kB\nVmSwap:\t    40 kB\nThreads:\t3\n"),
            ("cgroup", "1:memory:/old\n0::/new\n"),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        let read = || attribution(root.path(), 42, TargetId(3), Nanos(9)).unwrap();
        let mut want = Attribution {
            target: TargetId(3),
            at: Nanos(9),
            comm: "a) b".into(),
            cgroup: "/old".into(),
            swapped: 40 << 10,
            major_faults: 5,
        };
        assert_eq!(read(), want);
        // A process that is ending has no memory, and a kernel without groups shows none.
        fs::write(dir.join("status"), "Name:\ta\nThreads:\t3\n").unwrap();
        fs::remove_file(dir.join("cgroup")).unwrap();
        (want.swapped, want.cgroup) = (0, "".into());
        assert_eq!(read(), want);
        fs::write(dir.join("status"), "VmSwap:\tmuch kB\n").unwrap();
        assert!(attribution(root.path(), 42, TargetId(3), Nanos(9)).is_err());
    }
}
