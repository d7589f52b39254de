//! Exclusions: processes that are never watched, even if another option selects them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::cgroup::{Cgroup, Subtree};
use isotherm_linux::{proc, sys};
use tracing::info;

use super::error::FollowError;
use super::selection::Selection;
use crate::ROOT;

/// Excluded processes, by pid, name and control group.
#[derive(Debug, Default)]
pub struct Exclusions {
    /// pid and start time, in ticks since boot: a later process with the same pid is not excluded
    pids: BTreeMap<i32, u64>,
    /// as in `/proc/PID/comm`
    names: Vec<String>,
    groups: Vec<Subtree>,
    /// groups that do not exist yet
    missing: Vec<PathBuf>,
    next: Nanos,
}

/// Checking the exclusions again uses at most 1/`TIME_DIVISOR` of the time. The pause after a check is at most
/// `MAX_PAUSE`.
const TIME_DIVISOR: u32 = 1000;
const MAX_PAUSE: Duration = Duration::from_secs(5);

impl Exclusions {
    /// The exclusions of the options `--except-...`. A process or group that does not exist is an error,
    /// because its name may be misspelt, unless `awaited` is set.
    pub fn find(o: &Selection) -> Result<Self, FollowError> {
        let names = o.except_comms.iter().map(|name| proc::cut_comm(name)).collect();
        let mut excluded = Exclusions { names, ..Exclusions::default() };
        for &pid in &o.except_pids {
            match start_of(pid) {
                Some(start) => _ = excluded.pids.insert(pid, start),
                None if o.awaited => {
                    info!("there is no process {pid} to exclude");
                }
                None => return Err(FollowError::NoProcess(pid)),
            }
        }
        for path in &o.except_cgroups {
            match Cgroup::find(ROOT.as_ref(), path) {
                Ok(group) => excluded.groups.push(subtree(&group)?),
                Err(e) if !o.awaited => return Err(e.into()),
                Err(_) => {
                    let name = path.display();
                    info!("there is no control group {name} to exclude yet");
                    excluded.missing.push(path.clone());
                }
            }
        }
        Ok(excluded)
    }

    /// Whether nothing is excluded.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
            && self.names.is_empty()
            && self.groups.is_empty()
            && self.missing.is_empty()
    }

    /// Whether process `pid` is excluded at present; returns the option that excludes it.
    pub fn by(&self, pid: i32) -> Option<&'static str> {
        let is_called = || proc::comm(ROOT.as_ref(), pid).is_ok_and(|c| self.names.contains(&c));
        if self.pids.get(&pid).is_some_and(|&start| start_of(pid) == Some(start)) {
            Some("--except-pid")
        } else if !self.names.is_empty() && is_called() {
            Some("--except-comm")
        } else {
            let is_in = self.groups.iter().any(|group| group.has(ROOT.as_ref(), pid));
            is_in.then_some("--except-cgroup")
        }
    }

    /// Checks `pids` again, and returns those that are excluded now, sorted. Returns `None` if nothing is
    /// excluded or if the last check was a short time ago. The check repeats because a name changes with exec,
    /// and a process may move to another group.
    pub fn among_if_due(&mut self, pids: impl Iterator<Item = i32>) -> Option<Vec<i32>> {
        let begin = sys::monotonic();
        if self.is_empty() || begin < self.next {
            return None;
        }
        // CPU time, because time in which other processes had the CPU must not lengthen the pause.
        let worked = sys::thread_cpu();
        let groups = &mut self.groups;
        self.missing.retain(|path| {
            let found = Cgroup::find(ROOT.as_ref(), path).ok().and_then(|g| subtree(&g).ok());
            let is_missing = found.is_none();
            groups.extend(found);
            is_missing
        });
        let mut found: Vec<i32> = pids.filter(|&pid| self.by(pid).is_some()).collect();
        found.sort_unstable();
        let worked = sys::thread_cpu().saturating_sub(worked);
        self.next = begin + (worked * TIME_DIVISOR).min(MAX_PAUSE);
        Some(found)
    }
}

fn subtree(group: &Cgroup) -> Result<Subtree, FollowError> {
    let found = group.subtree(ROOT.as_ref());
    found.ok_or_else(|| FollowError::NoMemory(group.dir().to_owned()))
}

/// Start time of process `pid`, in ticks since boot.
pub(super) fn start_of(pid: i32) -> Option<u64> {
    Some(proc::stat(ROOT.as_ref(), pid).ok()?.start_ticks)
}
