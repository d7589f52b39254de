//! Runs a command with advice.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_linux::cgroup::Cgroup;
use isotherm_linux::proc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::process::Processes;
use super::{Advice, ExecError};
use crate::follow::{StartedCommand, resolve};
use crate::interleave::Family;
use crate::stop::Stop;

/// Part of the limit of the group, or of the machine's memory without a limit, that may be locked. The rest is for
/// memory without advice, and for what the kernel itself needs.
const LOCK_SHARE: f64 = 0.75;
/// Time between two looks at the command's mappings at first, and at most: it grows while nothing new appears.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

/// What was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// maximum number of bytes that were locked at any time
    pub locked: u64,
    /// maximum number of bytes for which huge pages were requested
    pub huge: u64,
    /// maximum number of bytes for which the kernel refused either
    pub refused: u64,
}

/// Bytes that may be locked: `wanted`, or else a share of the lowest limit of this process's control group and of
/// those above it, or of the memory of the machine; without `CAP_IPC_LOCK` no more than `RLIMIT_MEMLOCK`.
#[must_use]
pub fn lock_budget(wanted: Option<u64>) -> u64 {
    let budget = wanted.unwrap_or_else(|| (memory() as f64 * LOCK_SHARE) as u64);
    raise_limit().map_or(budget, |most| budget.min(most))
}

/// The memory that the command may use.
fn memory() -> u64 {
    let root = Path::new(crate::ROOT);
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let total = proc::meminfo(root).map_or(0, |m| m.total);
    let limit = Cgroup::of_process(root, own).and_then(|group| group.lowest_limit());
    limit.map_or(total, |limit| limit.min(total))
}

/// Raises `RLIMIT_MEMLOCK` for this process and those that it starts. Returns the limit, if there is one.
fn raise_limit() -> Option<u64> {
    let none = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, none).is_err() {
        let limit = getrlimit(Resource::Memlock);
        let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, ..limit });
    }
    let is_exempt = capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::IPC_LOCK));
    getrlimit(Resource::Memlock).current.filter(|_| !is_exempt)
}

/// Runs `command`, and applies `advice` in it and in its descendants as their mappings appear. Returns the exit
/// status of the command, `None` if `stop` ended it, and what was applied.
///
/// # Errors
/// If the command cannot start. Advice that cannot be applied is reported, and the command continues.
pub fn run(
    command: &[String],
    advice: &Advice,
    stop: &Stop,
) -> Result<(Option<u8>, Applied), ExecError> {
    let Some(program) = resolve(command)? else { return Ok((Some(0), Applied::default())) };
    let root = Path::new(crate::ROOT);
    let family = Family::begin(root).map_err(|e| ExecError::Family(e.into()))?;
    let mut started = StartedCommand::spawn(&program, command, &[])?;
    let mut processes = Processes::new(&advice.programs);
    let mut pause = SHORTEST;
    while !stop.is_over() && !started.has_ended_in(pause)? {
        let since = Instant::now();
        let is_new = processes.apply(&family.pids(started.pid()));
        let longer = if is_new { SHORTEST } else { (pause * 3 / 2).min(LONGEST) };
        // Looking takes at most a hundredth of the time.
        pause = longer.max(since.elapsed() * 100);
    }
    Ok((started.end(stop)?, processes.most))
}
