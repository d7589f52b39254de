//! The kernel's own monitor.

use isotherm_core::{AddrRange, Attrs, Nanos, OpsError, Source, Step, TargetId};
use isotherm_linux::damon::{
    Availability, DamonError, Kdamond, KdamondAttrs, MonitoredMemory, availability,
};
use isotherm_linux::{HeldProcesses, Hold, Physical, RamRange};
use tracing::info;

use super::{AttrsFor, Ready, StaticTargets, Watch, WatchError, physical};
use crate::ROOT;
use crate::usage::UsageError;

/// Watches processes, or ranges of one process.
pub struct ProcessKdamond {
    held: HeldProcesses,
    ranges: Vec<AddrRange>,
    asked: KdamondAttrs,
}

impl ProcessKdamond {
    /// Fails unless DAMON is free.
    pub fn open(ranges: Vec<AddrRange>, asked: KdamondAttrs) -> Result<Self, WatchError> {
        match availability(ROOT.as_ref()) {
            Availability::Free => {}
            Availability::Held(holder) => return Err(DamonError::Held(holder).into()),
            Availability::Absent(why) => return Err(DamonError::Absent(why).into()),
        }
        Ok(ProcessKdamond { held: HeldProcesses::default(), ranges, asked })
    }

    fn watched(&self, targets: &[TargetId]) -> MonitoredMemory {
        let all = with_pids(&self.held, targets);
        match all.first() {
            Some(&(target, pid)) if !self.ranges.is_empty() => {
                MonitoredMemory::Ranges { target, pid, ranges: self.ranges.clone() }
            }
            _ => MonitoredMemory::Processes(all),
        }
    }
}

fn with_pids(held: &HeldProcesses, targets: &[TargetId]) -> Vec<(TargetId, i32)> {
    targets.iter().filter_map(|&t| Some((t, held.pid(t)?))).collect()
}

fn describe(of: &str) -> String {
    format!(
        "damon: the kernel's own monitor, {of}. Resolution: regions, whose borders are random; \
         one page of each is checked per sampling interval. Not seen: memory of devices, and \
         pages on no LRU list"
    )
}

impl Ready for ProcessKdamond {
    fn describe(&self) -> String {
        describe(if self.ranges.is_empty() { "vaddr" } else { "fvaddr" })
    }

    fn attrs(&self, _: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        Ok(self.asked.attrs)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        &mut self.held
    }

    fn begin(
        self: Box<Self>,
        _: Attrs,
        targets: &[TargetId],
        _: u64,
    ) -> Result<Box<dyn Watch>, WatchError> {
        let watched = self.watched(targets);
        let kdamond = Kdamond::start(ROOT.as_ref(), watched, self.asked)?;
        say_results(&kdamond);
        Ok(Box::new(KdamondWatch { kdamond, held: self.held }))
    }
}

fn say_results(kdamond: &Kdamond) {
    info!("kernel DAMON: results by {}", kdamond.results());
}

/// Watches physical memory. The kdamond runs from the start, because only a trial shows whether it can.
pub struct PhysicalKdamond(KdamondWatch, Attrs);

impl PhysicalKdamond {
    /// Watches these stretches of physical memory.
    pub fn open(asked: KdamondAttrs, memory: &[RamRange]) -> Result<Self, WatchError> {
        let attrs = asked.attrs;
        let watched = MonitoredMemory::Physical {
            target: Physical::PHYSICAL_TARGET,
            ranges: memory.iter().map(|s| s.range).collect(),
            mappings: memory.iter().map(RamRange::mapping).collect(),
        };
        let kdamond = Kdamond::start(ROOT.as_ref(), watched, asked)?;
        say_results(&kdamond);
        Ok(PhysicalKdamond(KdamondWatch { kdamond, held: HeldProcesses::default() }, attrs))
    }
}

impl Ready for PhysicalKdamond {
    fn describe(&self) -> String {
        describe("paddr")
    }

    fn attrs(&self, _: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        Ok(self.1)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        &mut self.0.held
    }

    fn watched(&self) -> Option<StaticTargets> {
        Some(physical::lasting())
    }

    fn begin(
        self: Box<Self>,
        _: Attrs,
        _: &[TargetId],
        _: u64,
    ) -> Result<Box<dyn Watch>, WatchError> {
        Ok(Box::new(self.0))
    }
}

/// A running kdamond.
struct KdamondWatch {
    kdamond: Kdamond,
    held: HeldProcesses,
}

impl Source for KdamondWatch {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        self.kdamond.step(now)
    }
}

impl Watch for KdamondWatch {
    fn hold(&mut self) -> &mut dyn Hold {
        &mut self.held
    }

    fn set_targets(&mut self, targets: &[TargetId]) -> Result<(), WatchError> {
        Ok(self.kdamond.set_targets(&with_pids(&self.held, targets))?)
    }

    fn outlive_targets(&mut self) {
        self.kdamond.outlive_targets();
    }

    fn stop(&mut self) -> Result<(), WatchError> {
        Ok(self.kdamond.stop()?)
    }
}
