//! Runs a command with advice.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_linux::cgroup::Cgroup;
use isotherm_linux::{Thread, proc, sys};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustix::thread::CapabilitySet;
use tracing::warn;

use super::process::Processes;
use super::{ExecError, ProgramAdvice};
use crate::follow::{StartedCommand, resolve};
use crate::interleave::{ProcessTree, with_descendants};
use crate::stop::Stop;

/// Share of the group's limit, or of the machine's memory without a limit, that is never locked: the kernel and
/// short-lived memory need it.
const RESERVE: f64 = 0.1;
/// Minimum of the reserve, in bytes: in less memory, reclaim finds too few pages.
const MIN_RESERVE: u64 = 16 << 20;
/// Maximum of the reserve, as a share. Memory that is not locked uses it.
const MAX_RESERVE: f64 = 0.5;
/// Time between two looks at the command's mappings at first, and at most: it grows while nothing new appears.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(20);
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The amount of applied advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppliedAdvice {
    /// maximum number of bytes that were locked at any time
    pub locked: u64,
    /// maximum number of bytes for which huge pages were requested
    pub huge: u64,
    /// maximum number of bytes for which the kernel refused either
    pub refused: u64,
}

/// A raised `RLIMIT_MEMLOCK` of a process, restored on drop.
#[derive(Debug)]
pub struct RaisedLimit {
    process: Thread,
    before: Rlimit,
    raised: Rlimit,
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        let (root, pid) = (Path::new(crate::ROOT), self.process.pid);
        // The process may have changed it since.
        let now = proc::memlock_limit(root, pid).ok().filter(|_| self.process.lives(root));
        if now == Some(self.raised)
            && let Err(e) = set_limit(pid, self.before)
        {
            let of = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
            let (soft, hard) = (of(self.before.current), of(self.before.maximum));
            warn!(
                "cannot restore RLIMIT_MEMLOCK of process {pid}: {e}; if it still runs: prlimit --pid {pid} \
                 --memlock={soft}:{hard}"
            );
        }
    }
}

fn set_limit(pid: i32, limit: Rlimit) -> rustix::io::Result<Rlimit> {
    prlimit(Pid::from_raw(pid), Resource::Memlock, limit)
}

/// Maximum number of bytes to lock in a process, or in a command if `pid` is `None`. It is `wanted`, or else the
/// memory that the process may use, minus a reserve for the memory that it needs in addition to the advised
/// ranges.
///
/// Raises `RLIMIT_MEMLOCK` of the process as far as the kernel permits, until the second value is dropped. For a
/// command it raises the limit of this process, which the command inherits. Without `CAP_IPC_LOCK`, that limit is
/// another maximum.
#[must_use]
pub fn lock_budget(
    advice: &ProgramAdvice,
    wanted: Option<u64>,
    pid: Option<i32>,
) -> (u64, Option<RaisedLimit>) {
    let of = pid.or_else(|| i32::try_from(std::process::id()).ok()).unwrap_or(0);
    let budget = wanted.unwrap_or_else(|| share(memory(of), advice.needed_beside()));
    let (most, raised) = raise_limit(of);
    (most.map_or(budget, |most| budget.min(most)), raised)
}

/// The part of `memory` that may be locked if the process needs `beside` further bytes that are not locked.
fn share(memory: u64, beside: u64) -> u64 {
    let part = |part: f64| (memory as f64 * part) as u64;
    let most = part(MAX_RESERVE);
    memory - beside.clamp(part(RESERVE).max(MIN_RESERVE).min(most), most)
}

/// The memory that a process may use: the lowest limit of its group and of those above it, or all memory of the
/// machine.
fn memory(pid: i32) -> u64 {
    let root = Path::new(crate::ROOT);
    let total = proc::meminfo(root).map_or(0, |m| m.total);
    let limit = Cgroup::charged_for(root, pid).and_then(|group| group.lowest_limit());
    limit.map_or(total, |limit| limit.min(total))
}

/// Raises `RLIMIT_MEMLOCK` of a process as far as possible: without `CAP_SYS_RESOURCE`, up to its own maximum.
/// Returns the limit, if there is one for this process, and the raised limit, if it was lower before.
fn raise_limit(pid: i32) -> (Option<u64>, Option<RaisedLimit>) {
    let root = Path::new(crate::ROOT);
    let before = proc::memlock_limit(root, pid).ok();
    let Some((before, process)) = before.zip(Thread::now(root, pid)) else { return (None, None) };
    let unlimited = Rlimit { current: None, maximum: None };
    let highest = [unlimited, Rlimit { current: before.maximum, ..before }];
    let raised = highest.into_iter().find(|limit| set_limit(pid, *limit).is_ok());
    let effective = proc::effective_capabilities(root, pid).unwrap_or(0);
    let limit = raised.unwrap_or(before).current;
    let raised = raised.filter(|raised| *raised != before);
    (
        limit.filter(|_| effective & CapabilitySet::IPC_LOCK.bits() == 0),
        raised.map(|raised| RaisedLimit { process, before, raised }),
    )
}

/// Runs `command`, and applies `advice` in it and in its descendants as their mappings appear. Then undoes the locks in
/// descendants that are left. Returns the exit status of the command, `None` if `stop` ended it, and what was applied.
///
/// # Errors
/// If the command cannot start. Advice that cannot be applied is reported, and the command continues.
pub fn run(
    command: &[String],
    advice: &ProgramAdvice,
    stop: &Stop,
) -> Result<(Option<u8>, AppliedAdvice), ExecError> {
    let Some(program) = resolve(command)? else { return Ok((Some(0), AppliedAdvice::default())) };
    let root = Path::new(crate::ROOT);
    let family = ProcessTree::begin(root).map_err(|e| ExecError::Family(e.into()))?;
    let mut started = StartedCommand::spawn(&program, command, &[])?;
    let mut applying = Applying::new(advice);
    let mut until_its_end = || {
        while !started.has_ended_before(applying.pause, stop)? && !stop.is_over() {
            applying.round(&family.pids(started.pid()), stop);
        }
        started.end(stop)
    };
    let ended = until_its_end();
    applying.processes.unlock();
    Ok((ended?, applying.processes.most))
}

/// Applies `advice` in process `pid` and in its descendants until it ends or `stop` is over. Then undoes all locks,
/// and returns what was applied.
///
/// # Errors
/// If there is no such process.
pub fn apply(pid: i32, advice: &ProgramAdvice, stop: &Stop) -> Result<AppliedAdvice, ExecError> {
    let root = Path::new(crate::ROOT);
    let mut applying = Applying::new(advice);
    let process = Thread::now(root, pid).ok_or(ExecError::NoProcess(pid))?;
    while !stop.is_over() && process.runs(root) {
        applying.round(&with_descendants(root, vec![pid]), stop);
        stop.sleep_until(sys::monotonic() + applying.pause);
    }
    applying.processes.unlock();
    Ok(applying.processes.most)
}

/// Applies advice in rounds to the mappings that have appeared.
struct Applying<'a> {
    processes: Processes<'a>,
    /// time until the next round
    pause: Duration,
}

impl<'a> Applying<'a> {
    fn new(advice: &'a ProgramAdvice) -> Self {
        Applying { processes: Processes::new(&advice.programs), pause: MIN_LOOK_INTERVAL }
    }

    fn round(&mut self, pids: &[i32], stop: &Stop) {
        let since = Instant::now();
        let calls = self.processes.apply(pids, stop);
        let longer = if calls.is_some() { MIN_LOOK_INTERVAL } else { self.pause * 3 / 2 };
        // Looking takes at most a hundredth of the time. Calls may wait for pages, and threads
        // may not stop, which is no work of isotherm.
        let waited = calls.unwrap_or_default() + self.processes.waited;
        let looking = since.elapsed().saturating_sub(waited);
        self.pause = longer.min(MAX_LOOK_INTERVAL).max(looking * 100);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_and_needed_memory_are_not_locked() {
        let mib = |memory: u64, beside: u64| share(memory << 20, beside << 20) >> 20;
        assert_eq!([0, 100, 300, 900].map(|beside| mib(1000, beside)), [900, 900, 700, 500]);
        assert_eq!([0, 20, 100].map(|memory| mib(memory, 0)), [0, 10, 84]);
    }
}
