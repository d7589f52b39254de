//! Virtual memory of processes: BPF reads page tables; `MADV_COLD` clears accessed bits, and `clear_refs`
//! clears those that `MADV_COLD` does not.

use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::{
    Activity, Ask, Cost, Liveness, Look, Mapping, OpsError, PAGE_SIZE, Seen, Space, Survey,
    TargetId,
};

use super::clear::{check_folios, clear};
use super::epochs::{Epochs, Scope};
use super::held::AttachError;
use super::process::VaddrTarget;
use super::processes::{Hold, hold_by_targets};
use super::survey::{PressureCache, Price, measure_price};
use super::targets::ProcessTable;
use super::window::read_windows;
use crate::act::PageTimes;
use crate::proc;
use crate::sys::CpuLaps;
use crate::walker::{WalkError, WalkMethod, Walker, fitting};

/// How accessed bits are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clearing {
    /// Page by page, with `MADV_COLD`. For memory that this does not clear (mapped more than once, or locked):
    /// `clear_refs` for the whole process at once, every second or less often, if permitted.
    Cold,
    /// All bits of a process at once, with `clear_refs`.
    Refs,
}

/// The operations set for processes.
pub struct Vaddr {
    pub(crate) walker: Walker,
    pub(crate) clearing: Clearing,
    epochs: Epochs,
    pub(crate) root: PathBuf,
    pub(crate) targets: ProcessTable<VaddrTarget>,
    pub(crate) cpu: CpuLaps,
    pub(super) pressure: PressureCache,
    /// The last read of all memory ended early.
    pub(super) ended_early: bool,
    /// of actions so far
    pub(crate) page_times: PageTimes,
}

impl Vaddr {
    /// An operations set without targets. It uses the fastest way of reading that works here, and clears page
    /// by page.
    ///
    /// # Errors
    /// If BPF cannot read page tables here: the reason why the fastest way failed.
    pub fn new() -> Result<Self, WalkError> {
        Ok(Self::over(Walker::fastest()?, Clearing::Cold))
    }

    /// As [`Vaddr::new`], but with this way of clearing.
    ///
    /// # Errors
    /// The same as those of [`Vaddr::new`].
    pub fn clearing(clearing: Clearing) -> Result<Self, WalkError> {
        Ok(Self::over(Walker::fastest()?, clearing))
    }

    /// An operations set without targets that uses these ways of reading and clearing.
    ///
    /// # Errors
    /// If BPF cannot read page tables in this way here.
    pub fn with(reading: WalkMethod, clearing: Clearing) -> Result<Self, WalkError> {
        Ok(Self::over(Walker::load(reading)?, clearing))
    }

    fn over(walker: Walker, clearing: Clearing) -> Self {
        let root = PathBuf::from("/");
        // If this cannot be determined, isotherm must not clear soft-dirty bits that another program may need.
        let soft_dirty = proc::has_soft_dirty(&root).unwrap_or(true);
        measure_price();
        let scope = match clearing {
            Clearing::Cold => Scope::Unclearable,
            Clearing::Refs => Scope::All,
        };
        Vaddr {
            walker,
            clearing,
            epochs: Epochs::new(scope, soft_dirty),
            pressure: PressureCache::new(&root),
            ended_early: false,
            root,
            targets: ProcessTable::default(),
            cpu: CpuLaps::begin(),
            page_times: PageTimes::default(),
        }
    }

    /// From now on works as on kernels with soft-dirty bits, for tests of that path.
    pub fn pretend_soft_dirty(&mut self) {
        self.epochs.pretend_soft_dirty();
    }

    /// The way in which page tables are read.
    #[must_use]
    pub fn reading(&self) -> WalkMethod {
        self.walker.reading()
    }

    /// Answers all asks of one target.
    fn look_at(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let Some(target) = asks.first().map(|a| a.target) else { return Ok(Cost::default()) };
        let Vaddr { walker, targets, epochs, .. } = self;
        let process = targets.get(target)?;
        let mut cost = Cost::default();
        let mut rest = asks;
        while !rest.is_empty() {
            let n = fitting(rest.iter().map(|a| a.range)).max(1).min(rest.len());
            let (now, later) = rest.split_at(n);
            let mut windows = read_windows(walker, process, epochs, now)?;
            cost.pages += now.iter().map(|a| a.range.len() / PAGE_SIZE).sum::<u64>();
            if self.clearing == Clearing::Cold {
                check_folios(walker, process, &mut windows)?;
                let cleared = clear(process, now, &mut windows)?;
                let asked = now.iter().zip(&windows).filter(|(ask, _)| ask.clear);
                let young = asked.map(|(_, w)| u64::from(w.seen.young)).sum();
                cost.clears += cleared;
                cost.lost += Price::here().of(cleared, process.running(), young);
            }
            // Windows that could not be read are dropped.
            out.extend(windows.iter().map(|w| w.seen(epochs)));
            out.extend(std::iter::repeat_n(Seen::default(), now.len() - windows.len()));
            rest = later;
        }
        Ok(cost)
    }
}

impl Hold for Vaddr {
    fn attach(&mut self, pid: i32) -> Result<TargetId, AttachError> {
        let cold = self.clearing == Clearing::Cold;
        let process = VaddrTarget::attach(&mut self.walker, &self.root, pid, cold)?;
        Ok(self.targets.add(process))
    }

    hold_by_targets!(targets);
}

impl Look for Vaddr {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let mut cost = Cost::default();
        for part in asks.chunk_by(|a, b| a.target == b.target) {
            cost += self.look_at(part, out)?;
        }
        // A caller that requests no clears now has all results that it waits for.
        if asks.iter().all(|a| !a.clear) {
            cost += self.epochs.step(&mut self.walker, &mut self.targets)?;
        }
        // All CPU time of this thread since the last look: it includes the work of the monitor itself.
        cost.cpu = self.cpu.lap();
        Ok(cost)
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        (self.clearing == Clearing::Cold).then_some(self)
    }
}

impl Space for Vaddr {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        out.clear();
        let Vaddr { walker, targets, .. } = self;
        let process = targets.get(target)?;
        let read = process.update(walker);
        let state = process.outcome(read)?;
        if state != Liveness::Gone {
            out.extend_from_slice(&process.mappings);
        }
        Ok(state)
    }

    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        self.targets.ran(target)
    }

    fn activity(&mut self, target: TargetId) -> Option<Activity> {
        let ran = self.targets.ran(target)?;
        Some(Activity { ran, acts: self.targets.find(target)?.acts })
    }
}
