//! The resource use of a program.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The resource use of a run.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// wall time
    pub time: Duration,
    /// CPU time of all its threads, in user and in kernel mode
    pub cpu: Duration,
    /// maximum number of resident bytes. The kernel's figure is at least that of the parent
    pub peak_rss: u64,
    /// its exit status
    pub status: ExitStatus,
}

/// Runs a program until it ends.
pub fn run(command: &mut Command) -> io::Result<Usage> {
    use std::os::unix::process::ExitStatusExt;
    let begin = Instant::now();
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: rusage is a plain C structure of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local variables that live until the call returns. The child is ours, and
    // has not been waited for.
    let waited = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    if waited != pid {
        return Err(io::Error::last_os_error());
    }
    let peak_rss = u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10;
    let cpu = duration(usage.ru_utime) + duration(usage.ru_stime);
    Ok(Usage { time: begin.elapsed(), cpu, peak_rss, status: ExitStatus::from_raw(status) })
}

/// Runs `command`, an isotherm with the arguments `args`, and prints these with its time, CPU time and peak memory.
pub fn print_run(command: &mut Command, args: &[&str]) -> Result<()> {
    let used = run(command.stdout(Stdio::null())).context("cannot run isotherm")?;
    let args = args.join(" ");
    ensure!(used.status.success(), "isotherm {args} has failed");
    let (seconds, cpu) = (used.time.as_secs_f64(), used.cpu.as_secs_f64());
    let mib = used.peak_rss as f64 / (1 << 20) as f64;
    println!("{args:<64} {seconds:>8.2} {cpu:>8.2} {mib:>10.1}");
    Ok(())
}

fn duration(t: libc::timeval) -> Duration {
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(number(t.tv_sec)) + Duration::from_micros(number(t.tv_usec))
}

/// Faults of the calling thread so far that waited for swap or a disk.
pub fn own_major_faults() -> u64 {
    // SAFETY: rusage is a plain C structure of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local variable that lives until the call returns.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    u64::try_from(usage.ru_majflt).unwrap_or(0)
}

/// The resource use of a process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// CPU time of its first thread
    pub cpu: Duration,
    /// faults that waited for swap or a disk
    pub major_faults: u64,
    /// all other faults
    pub minor_faults: u64,
}

/// The resource use of process `pid` so far.
///
/// # Errors
/// If the process has ended, also if its parent has not waited for it: a bench must not count on with a process that the
/// kernel killed for want of memory.
pub fn of(pid: i32) -> io::Result<Used> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let wrong = || io::Error::other(format!("/proc/{pid} does not report the resource use"));
    let cpu = read("schedstat")?.split(' ').next().and_then(|ns| ns.parse().ok());
    // The name may contain any character; the fields follow after it.
    let stat = read("stat")?;
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    if fields.is_some_and(|f| f.starts_with(['Z', 'X'])) {
        return Err(io::Error::other(format!("process {pid} has ended; was it out of memory?")));
    }
    let number = |i| fields.and_then(|f| f.split(' ').nth(i)?.parse().ok());
    let (minor_faults, major_faults) = number(7).zip(number(9)).ok_or_else(wrong)?;
    let cpu = Duration::from_nanos(cpu.ok_or_else(wrong)?);
    Ok(Used { cpu, major_faults, minor_faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_uses_time() {
        let me = i32::try_from(std::process::id()).unwrap();
        let before = of(me).unwrap();
        let waste: u64 = (0..50_000_000u64).map(std::hint::black_box).sum();
        assert!(waste > 0 && of(me).unwrap().cpu >= before.cpu);
        assert!(of(-1).is_err());
    }

    #[test]
    fn a_process_that_nobody_waited_for_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(of(pid).is_ok());
        drop(child.stdin.take());
        while of(pid).is_ok() {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        child.wait().unwrap();
    }
}
