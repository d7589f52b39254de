//! `/proc/PID/task/TID/children`, and the pids of all processes.

use std::path::Path;

use super::{pid_file, read_limited};

/// The present child processes of `pid`; none if it has ended.
#[must_use]
pub fn children(root: &Path, pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(pid_file(root, pid, "task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|t| read_limited(&t.path().join("children"), 1 << 20).ok());
    lists
        .flat_map(|l| l.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The present pids of all processes and kernel threads: the directories of `/proc` that are numbers.
#[must_use]
pub fn pids(root: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_there() {
        assert!(pids("/".as_ref()).contains(&crate::walker::own_pid()));
    }
}
