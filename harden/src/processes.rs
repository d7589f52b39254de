//! The processes of the sandbox.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// Time in which processes that a command has signalled may end.
const GRACE: Duration = Duration::from_secs(2);

/// Processes that the command of a trial left behind, by pid and name. They are ended afterwards.
///
/// The experiment is the first process of its namespace, so that it inherits the children of any process that ends,
/// and no process outside is visible.
pub fn left() -> Result<Vec<String>> {
    left_but(&[])
}

/// The same, but for these processes of the experiment.
pub fn left_but(own: &[u32]) -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        reap();
        let mut pids = others()?;
        pids.retain(|pid| !own.contains(&pid.unsigned_abs()));
        if pids.is_empty() {
            return Ok(Vec::new());
        }
        if begin.elapsed() > GRACE {
            let names = pids.iter().map(|pid| format!("{} ({pid})", name(*pid))).collect();
            for pid in pids.into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
            reap();
            return Ok(names);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The end of children is awaited, or they would be zombies.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn others() -> Result<Vec<i32>> {
    let own = getpid().as_raw_pid();
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter(|pid| *pid != own).collect())
}

fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}
