//! What a program took.

use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// from start to end
    pub time: Duration,
    /// of all its threads, in user and in kernel mode
    pub cpu: Duration,
    /// most bytes resident at a time; at least those of who started it, as the kernel counts
    pub peak_rss: u64,
    /// how it ended
    pub status: ExitStatus,
}

/// Runs a program to its end.
///
/// # Errors
/// If it cannot be started, or waited for.
pub fn run(command: &mut Command) -> io::Result<Usage> {
    use std::os::unix::process::ExitStatusExt;
    let begin = Instant::now();
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: rusage is a plain C structure of numbers, for which zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of ours that live through the call, and the child is
    // ours and has not been waited for.
    let waited = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    if waited != pid {
        return Err(io::Error::last_os_error());
    }
    let peak_rss = u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10;
    let cpu = duration(usage.ru_utime) + duration(usage.ru_stime);
    Ok(Usage { time: begin.elapsed(), cpu, peak_rss, status: ExitStatus::from_raw(status) })
}

fn duration(t: libc::timeval) -> Duration {
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(number(t.tv_sec)) + Duration::from_micros(number(t.tv_usec))
}
