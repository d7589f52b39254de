//! `/proc/PID/stat`, `/proc/PID/statm` and `/proc/PID/cmdline`.

use std::path::Path;

use isotherm_core::PAGE_SIZE;

use super::{ProcError, pid_file, read_limited};

/// The parts of `/proc/PID/stat` that isotherm needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// the name of the program, at most 15 bytes
    pub comm: String,
    /// pid of the parent
    pub ppid: i32,
    /// It has ended, and its parent has not waited for it yet (a zombie).
    pub has_ended: bool,
    /// a kernel thread, without memory of its own
    pub kernel_thread: bool,
    /// number of its threads
    pub threads: u32,
    /// start time, in clock ticks since boot. With the pid, it identifies the process for ever
    pub start_ticks: u64,
    /// major faults since it started: pages for which it had to wait
    pub major_faults: u64,
}

/// Maximum length of a name in the kernel: `TASK_COMM_LEN` without the final zero.
const MAX_COMM: usize = 15;
const PF_KTHREAD: u64 = 0x0020_0000;

/// Reads `/proc/PID/stat`.
///
/// # Errors
/// If there is no such process.
pub fn stat(root: &Path, pid: i32) -> Result<Stat, ProcError> {
    let path = pid_file(root, pid, "stat");
    let text = read_limited(&path, 4096)?;
    parse(&text).ok_or_else(|| ProcError::parse(&path, &text))
}

/// The name may contain blanks and parentheses: it ends at the last closing parenthesis.
fn parse(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(')')?;
    let comm = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let flags: u64 = fields.get(6)?.parse().ok()?;
    let ppid = fields.get(1)?.parse().ok()?;
    let threads = fields.get(17)?.parse().ok()?;
    let start_ticks = fields.get(19)?.parse().ok()?;
    let major_faults = fields.get(9)?.parse().ok()?;
    let kernel_thread = flags & PF_KTHREAD != 0;
    let has_ended = matches!(*fields.first()?, "Z" | "X");
    Some(Stat { comm, ppid, has_ended, kernel_thread, threads, start_ticks, major_faults })
}

/// Reads `/proc/PID/comm`: only the name, for less than half of the cost of [`stat`].
///
/// # Errors
/// If there is no such process.
pub fn comm(root: &Path, pid: i32) -> Result<String, ProcError> {
    let mut name = read_limited(&pid_file(root, pid, "comm"), 64)?;
    if name.ends_with('\n') {
        name.pop();
    }
    Ok(name)
}

/// A name, cut as the kernel does, and as in [`Stat::comm`].
#[must_use]
pub fn cut_comm(name: &str) -> String {
    let bytes = name.as_bytes();
    String::from_utf8_lossy(bytes.get(..MAX_COMM).unwrap_or(bytes)).into_owned()
}

/// The command line, separated by blanks. It is empty during an `exec`, and if the process has cleared it.
///
/// # Errors
/// If there is no such process.
pub fn command(root: &Path, pid: i32) -> Result<String, ProcError> {
    let text = read_limited(&pid_file(root, pid, "cmdline"), 4096)?;
    let words: Vec<&str> = text.split('\0').map(str::trim).filter(|w| !w.is_empty()).collect();
    Ok(words.join(" "))
}

/// Resident memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    /// all resident memory
    pub all: u64,
    /// memory of files, and shared memory
    pub files: u64,
}

/// Reads `/proc/PID/statm`.
///
/// # Errors
/// If there is no such process.
pub fn resident(root: &Path, pid: i32) -> Result<Resident, ProcError> {
    let path = pid_file(root, pid, "statm");
    let text = read_limited(&path, 4096)?;
    let mut pages = text.split_whitespace().skip(1).map_while(|n| n.parse::<u64>().ok());
    let (all, files) =
        pages.next().zip(pages.next()).ok_or_else(|| ProcError::parse(&path, &text))?;
    Ok(Resident { all: all.saturating_mul(PAGE_SIZE), files: files.saturating_mul(PAGE_SIZE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_alone_is_that_of_all_the_rest() {
        let me = i32::try_from(std::process::id()).unwrap();
        let root = Path::new("/");
        assert_eq!(comm(root, me).unwrap(), stat(root, me).unwrap().comm);
        assert!(comm(root, i32::MAX).unwrap_err().is_gone());
    }

    #[test]
    fn a_name_with_everything() {
        let line = "42 (a (b) c) S 7 42 42 0 -1 4194560 100 0 5 0 1 2 0 0 20 0 3 0 99 1000 10";
        let comm = "a (b) c".into();
        let kernel_thread = false;
        let want = Stat {
            comm,
            ppid: 7,
            has_ended: false,
            kernel_thread,
            threads: 3,
            start_ticks: 99,
            major_faults: 5,
        };
        assert_eq!(parse(line), Some(want));
        assert!(
            parse("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 6 0 0")
                .unwrap()
                .kernel_thread
        );
        assert_eq!(parse("42 (cut"), None);
    }
}
