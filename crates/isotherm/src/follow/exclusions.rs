//! Processes that are never watched, whatever else selects them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use isotherm_core::Nanos;
use isotherm_linux::cgroup::{Cgroup, Subtree};
use isotherm_linux::{proc, sys};
use tracing::info;

use super::selection::Selection;
use crate::ROOT;

/// Processes by pid, name and control group.
#[derive(Debug, Default)]
pub struct Exclusions {
    /// with the time at which each was started: a later process of that pid is another
    pids: BTreeMap<i32, u64>,
    /// as in `/proc/PID/comm`
    names: Vec<String>,
    groups: Vec<Subtree>,
    /// groups that are not there yet
    missing: Vec<PathBuf>,
    next: Nanos,
}

/// Looking again at who is watched takes at most one part in so many of the time, but is done once in that
/// time.
const SHARE: u32 = 1000;
const LONGEST: Duration = Duration::from_secs(5);

impl Exclusions {
    /// Those of the options `--except-...`. A process or a group that is not there is an error, as it may be
    /// misspelt, unless processes are waited for.
    pub fn find(o: &Selection) -> Result<Self> {
        let names = o.except_comms.iter().map(|name| proc::cut_comm(name)).collect();
        let mut excluded = Exclusions { names, ..Exclusions::default() };
        for &pid in &o.except_pids {
            match start_of(pid) {
                Some(start) => _ = excluded.pids.insert(pid, start),
                None if o.awaited => {
                    info!("there is no process {pid} to exclude");
                }
                None => bail!("there is no process {pid}, which --except-pid names: leave it out"),
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

    /// Whether nobody is to be excluded.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
            && self.names.is_empty()
            && self.groups.is_empty()
            && self.missing.is_empty()
    }

    /// Whether this process is, as things are now: the option that says so.
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

    /// Looks again at `pids`, unless nobody is to be excluded or that was done just now; those of them that are
    /// excluded by now, sorted. A name changes with exec, and a process may be moved to another group.
    pub fn among_if_due(&mut self, pids: impl Iterator<Item = i32>) -> Option<Vec<i32>> {
        let begin = sys::monotonic();
        if self.is_empty() || begin < self.next {
            return None;
        }
        // Time in which others had the CPU is not counted.
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
        self.next = begin + (worked * SHARE).min(LONGEST);
        Some(found)
    }
}

fn subtree(group: &Cgroup) -> Result<Subtree> {
    let found = group.subtree(ROOT.as_ref());
    found.ok_or_else(|| {
        anyhow::anyhow!(
            "{} is a control group without memory: name one of version 2, or of version 1's memory \
             controller",
            group.dir().display()
        )
    })
}

/// In ticks since boot.
pub(super) fn start_of(pid: i32) -> Option<u64> {
    Some(proc::stat(ROOT.as_ref(), pid).ok()?.start_ticks)
}
