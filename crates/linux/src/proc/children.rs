//! `/proc/PID/task/TID/children`, and the pids of all processes.

use std::path::Path;

use super::{pid_file, read_limited};

/// The present child processes of `pid`; none if it has ended.
#[must_use]
pub fn children(root: &Path, pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(pid_file(root, pid, "task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|t| read_limited(&t.path().join("children"), 1 << 20).ok());
    lists
        .flat_map(|list| complete(&list).filter_map(|p| p.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The pids of a list. The kernel writes a blank after each: without one, the limit has cut it.
fn complete(list: &str) -> impl Iterator<Item = &str> {
    list.rsplit_once(' ').map_or("", |(complete, _)| complete).split_whitespace()
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

    /// isotherm watched the process 123 instead of 1234567.
    #[test]
    fn a_pid_that_the_limit_cuts_is_no_child() {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("proc/7/task/7");
        std::fs::create_dir_all(&task).unwrap();
        let list = format!("5{}1234567 ", " ".repeat((1 << 20) - "5123".len()));
        std::fs::write(task.join("children"), list).unwrap();
        assert_eq!(children(root.path(), 7), [5]);
    }

    #[test]
    fn we_are_there() {
        assert!(pids("/".as_ref()).contains(&crate::walker::own_pid()));
    }
}
