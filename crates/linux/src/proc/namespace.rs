//! The pid namespace of `/proc`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{ProcError, read_limited};
use crate::walker::own_pid;

/// Checks that the pids in `/proc` are those of the system calls of this process: it was mounted in the pid
/// namespace of this process.
///
/// # Errors
/// If it was mounted in another one, does not exist, or cannot be read at the moment.
pub fn check_namespace(root: &Path) -> Result<(), ProcError> {
    let path = root.join("proc/self/status");
    match read_limited(&path, 1 << 16) {
        Ok(text) => match pids(&text) {
            Some(pids) if pids == [own_pid()] => Ok(()),
            Some(_) => Err(ProcError::Foreign),
            None => Err(ProcError::parse(&path, &text)),
        },
        // In the `/proc` of another namespace, `self` does not exist.
        Err(e) if e.is_gone() => Err(ProcError::Foreign),
        Err(e) => Err(e),
    }
}

/// The inode number of the initial pid namespace, `PROC_PID_INIT_INO`.
const INITIAL_PID_NS: u64 = 0xefff_fffc;

/// Whether pids here are those that the kernel shows in sysfs: those of the initial pid namespace.
#[must_use]
pub fn is_first_namespace(root: &Path) -> bool {
    // Without namespaces there is only one.
    fs::metadata(root.join("proc/self/ns/pid")).map_or(true, |m| m.ino() == INITIAL_PID_NS)
}

/// The pid of process `pid` in its own pid namespace, the innermost one.
#[must_use]
pub fn inner_pid(root: &Path, pid: u32) -> Option<u32> {
    let status = read_limited(&root.join(format!("proc/{pid}/status")), 1 << 16).ok()?;
    pids(&status)?.last().and_then(|&pid| pid.try_into().ok())
}

/// The pids of a process: in the namespace of `/proc`, then in each namespace below that contains it.
fn pids(status: &str) -> Option<Vec<i32>> {
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    // Kernels without namespaces have only the second line.
    line("NSpid:").or(line("Pid:"))?.split_whitespace().map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_inner_and_old() {
        assert_eq!(pids("Name:\tsh\nPid:\t812\nNSpid:\t812\t1\n"), Some(vec![812, 1]));
        assert_eq!(pids("Name:\tsh\nPid:\t7\nPPid:\t1\n"), Some(vec![7]));
        assert_eq!(pids("Name:\tsh\n"), None);
        assert!(check_namespace("/".as_ref()).is_ok());
        let nothing = tempfile::tempdir().unwrap();
        assert!(matches!(check_namespace(nothing.path()), Err(ProcError::Foreign)));
        // Another error of reading does not mean another namespace.
        fs::create_dir_all(nothing.path().join("proc/self/status")).unwrap();
        assert!(matches!(check_namespace(nothing.path()), Err(ProcError::Read { .. })));
    }
}
