//! `/proc/PID/task/TID/schedstat` and `stat`: the CPU time and the state of threads.

use std::path::Path;

use super::{ProcError, pid_file, read_limited};

/// A thread and its CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadTime {
    /// its id
    pub tid: i32,
    /// CPU time, in ns
    pub ran: u64,
}

/// The threads of `pid`, at most `limit` of them. None if the process has ended, or the kernel does not count
/// their times.
#[must_use]
pub fn threads(root: &Path, pid: i32, limit: usize) -> Vec<ThreadTime> {
    let dir = std::fs::read_dir(pid_file(root, pid, "task")).into_iter().flatten().flatten();
    let time = |entry: std::fs::DirEntry| {
        let text = read_limited(&entry.path().join("schedstat"), 256).ok()?;
        let ran = text.split_whitespace().next()?.parse().ok()?;
        Some(ThreadTime { tid: entry.file_name().to_str()?.parse().ok()?, ran })
    };
    dir.take(limit).filter_map(time).collect()
}

/// The ids of the threads of `pid`. None if the process has ended.
#[must_use]
pub fn tids(root: &Path, pid: i32) -> Vec<i32> {
    let dir = std::fs::read_dir(pid_file(root, pid, "task")).into_iter().flatten().flatten();
    dir.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The name of a thread of `pid`, as in `/proc/PID/task/TID/comm`.
///
/// # Errors
/// If there is no such thread.
pub fn thread_comm(root: &Path, pid: i32, tid: i32) -> Result<String, ProcError> {
    let path = pid_file(root, pid, "task").join(tid.to_string()).join("comm");
    Ok(read_limited(&path, 64)?.trim_end_matches('\n').to_owned())
}

/// Whether a thread of `pid` runs or waits for a CPU.
#[must_use]
pub fn is_runnable(root: &Path, pid: i32, tid: i32) -> bool {
    let path = pid_file(root, pid, "task").join(tid.to_string()).join("stat");
    let text = read_limited(&path, 4096).unwrap_or_default();
    text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walker::own_pid;

    #[test]
    fn threads_and_their_states() {
        let root = tempfile::tempdir().unwrap();
        for (tid, schedstat, stat) in
            [(7, "512 40 3\n", "7 (a) R) S 1"), (8, "", "8 (b) R 1"), (9, "99 0 1", "9 (c R) R 1")]
        {
            let dir = root.path().join(format!("proc/7/task/{tid}"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("schedstat"), schedstat).unwrap();
            std::fs::write(dir.join("stat"), stat).unwrap();
            std::fs::write(dir.join("comm"), "b b\n").unwrap();
        }
        let mut all = threads(root.path(), 7, 9);
        all.sort_by_key(|t| t.tid);
        let mut ids = tids(root.path(), 7);
        ids.sort_unstable();
        assert_eq!((ids, tids(root.path(), 8)), (vec![7, 8, 9], vec![]));
        assert_eq!(thread_comm(root.path(), 7, 8).unwrap(), "b b");
        assert_eq!(all, [ThreadTime { tid: 7, ran: 512 }, ThreadTime { tid: 9, ran: 99 }]);
        assert!(threads(root.path(), 7, 1).len() <= 1);
        assert_eq!(
            [7, 8, 9, 10].map(|tid| is_runnable(root.path(), 7, tid)),
            [false, true, true, false]
        );
        assert!(threads(root.path(), 8, 9).is_empty());
        assert!(is_runnable("/".as_ref(), own_pid(), rustix::thread::gettid().as_raw_pid()));
    }
}
