//! The simplest method, for kernels where no other one works: `clear_refs`, then `Referenced` in `smaps`, for
//! each mapping.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, Cost, Liveness, Look, Mapping, Nanos, OpsError, Seen, Space, TargetId,
};

use super::epochs;
use super::held::{AttachError, HeldProcess, no_refs};
use super::processes::{Hold, hold_by_targets};
use super::procfs_process::ProcfsProcess;
use super::targets::ProcessTable;
use crate::proc::{self, AreaUsage, ClearRefs, Refs};
use crate::sys::{CpuLaps, monotonic, thread_cpu};

/// Time from the clear to the first read, which limits the rates that can be distinguished to a few times its
/// inverse.
pub(crate) const FIRST_READ: Duration = Duration::from_millis(100);
/// An answer covers a whole mapping as if it had this many pages: its counts are shares of the mapping.
const SCALE: u32 = 4096;

/// The operations set for processes without BPF.
pub struct Smaps {
    root: PathBuf,
    soft_dirty: bool,
    targets: ProcessTable<Target>,
    cpu: CpuLaps,
}

struct Target {
    process: ProcfsProcess,
    refs: ClearRefs,
    since: Nanos,
    length: Duration,
    cost: Duration,
    first: Option<SmapsSample>,
    complete: Option<Epoch>,
}

struct SmapsSample {
    at: Nanos,
    areas: Vec<AreaUsage>,
}

struct Epoch {
    since: Nanos,
    first: Option<SmapsSample>,
    last: SmapsSample,
}

impl Smaps {
    /// An operations set without targets.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Smaps {
            root: root.to_owned(),
            soft_dirty: proc::has_soft_dirty(root).unwrap_or(true),
            targets: ProcessTable::default(),
            cpu: CpuLaps::begin(),
        }
    }
}

impl Deref for Target {
    type Target = HeldProcess;
    fn deref(&self) -> &HeldProcess {
        &self.process
    }
}

impl Target {
    /// Reads or clears if that is due. A failed reading counts as no new result.
    fn step(&mut self, soft_dirty: bool) -> Option<()> {
        let now = monotonic();
        let begin = thread_cpu();
        let read = |process: &ProcfsProcess| {
            let areas = proc::usage(&process.root, process.pid).ok()?;
            Some(SmapsSample { at: monotonic(), areas })
        };
        let under_way = self.since > Nanos(0);
        if under_way && now >= self.since + self.length {
            let last = read(&self.process)?;
            let epoch = Epoch { since: self.since, first: self.first.take(), last };
            self.complete = Some(epoch);
            self.cost += thread_cpu().saturating_sub(begin);
            self.length = epochs::length(self.cost, !soft_dirty);
        } else if under_way && !soft_dirty && self.first.is_none() && now >= self.since + FIRST_READ
        {
            self.first = Some(read(&self.process)?);
            self.cost += thread_cpu().saturating_sub(begin);
            return Some(());
        } else if under_way {
            return Some(());
        }
        let begin = thread_cpu();
        self.refs.clear(Refs::All).ok()?;
        if !soft_dirty {
            self.refs.flush().ok()?;
        }
        self.since = monotonic();
        self.cost = thread_cpu().saturating_sub(begin);
        Some(())
    }

    /// The result of the last epoch for the mapping that contains `range`.
    fn answer(&self, range: AddrRange) -> Seen {
        let Some(mapping) = self.process.mapping_at(range.start) else { return Seen::default() };
        let Some(epoch) = &self.complete else { return Seen::default() };
        let Some(last) = epoch.last.find(range.start) else { return Seen::default() };
        let first = epoch.first.as_ref().and_then(|r| Some((r.at, r.find(range.start)?)));
        let (read_at, usage) = first.unwrap_or((epoch.last.at, last));
        let now = monotonic();
        let mut seen = Seen { pages: SCALE, read_at: now, cleared_at: now, ..Seen::default() };
        let share = |part| share(part, last.range.len());
        let present = share(last.resident);
        if let Some(why) = mapping.unknown {
            seen.unknown.0[why.index()] = present;
            return seen;
        }
        let young = share(usage.referenced).min(present);
        let later = share(last.referenced).min(present).saturating_sub(young);
        Seen { present, young, later, read_at, since: Some(epoch.since), ..seen }
    }
}

/// `part` of `whole`, in units of 1/`SCALE`; at least 1 if `part` is not 0.
fn share(part: u64, whole: u64) -> u32 {
    let scaled = u128::from(part) * u128::from(SCALE) / u128::from(whole.max(1));
    let scaled = u32::try_from(scaled).unwrap_or(SCALE).min(SCALE);
    scaled.max(u32::from(part > 0))
}

impl SmapsSample {
    fn find(&self, addr: u64) -> Option<AreaUsage> {
        let i = self.areas.partition_point(|u| u.range.end <= addr);
        self.areas.get(i).copied().filter(|u| u.range.contains(addr))
    }
}

impl Hold for Smaps {
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError> {
        let process = ProcfsProcess::attach(&self.root, pid)?;
        let refs = ClearRefs::open(&self.root, pid).map_err(|e| no_refs(pid, e))?;
        let target = Target {
            process,
            refs,
            since: Nanos(0),
            length: epochs::length(Duration::ZERO, !self.soft_dirty),
            cost: Duration::ZERO,
            first: None,
            complete: None,
        };
        Ok(self.targets.add(target))
    }

    hold_by_targets!(targets);
}

impl Look for Smaps {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        for part in asks.chunk_by(|a, b| a.target == b.target) {
            let Some(id) = part.first().map(|a| a.target) else { continue };
            let target = self.targets.get(id)?;
            // If the process has ended, the next reading of its mappings reports it.
            let _ = target.step(self.soft_dirty);
            out.extend(part.iter().map(|ask| target.answer(ask.range)));
        }
        Ok(Cost { cpu: self.cpu.lap(), ..Cost::default() })
    }
}

impl Space for Smaps {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        let target = self.targets.get(target)?;
        let state = target.process.mappings_into(out)?;
        if state == Liveness::Replaced {
            (target.first, target.complete, target.since) = (None, None, Nanos(0));
        }
        Ok(state)
    }

    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        self.targets.ran(target)
    }
}
