//! Our own monitor, over physical memory.

use isotherm_core::{Attrs, Monitor, Nanos, OpsError, Source, Step, TargetId, watch};
use isotherm_linux::{HeldProcesses, Hold, IdleError, Physical, RamRange, Way};
use isotherm_record::TargetInfo;

use super::{AttrsFor, Ready, StaticTargets, Watch, WatchError};
use crate::ROOT;
use crate::usage::UsageError;

/// Physical memory, by idle page tracking.
pub struct PhysicalIdle {
    ops: Physical,
    /// holds no processes
    held: HeldProcesses,
}

impl PhysicalIdle {
    /// Watches these stretches of physical memory.
    pub fn open(memory: &[RamRange]) -> Result<Self, IdleError> {
        Ok(PhysicalIdle {
            ops: Physical::new(ROOT.as_ref(), memory)?,
            held: HeldProcesses::default(),
        })
    }
}

/// The target that stands for physical memory in a record.
pub fn lasting() -> StaticTargets {
    let kind = "physical memory";
    let fact = TargetInfo { id: Physical::PHYSICAL_TARGET, pid: None, command: kind.to_owned() };
    StaticTargets { kind, facts: vec![fact] }
}

impl Ready for PhysicalIdle {
    fn describe(&self) -> String {
        let (name, how) = (Way::PageIdle.name(), Way::PageIdle.how());
        format!(
            "{name}: {how}, of physical memory. Resolution: a folio, one sampling interval. Not \
             seen: accesses by devices, pages on no LRU list; pages in the TLB look idle until \
             their entries are dropped"
        )
    }

    fn attrs(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        asked.attrs_for(Way::PageIdle, false)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        &mut self.held
    }

    fn watched(&self) -> Option<StaticTargets> {
        Some(lasting())
    }

    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>, WatchError> {
        let monitor = watch(self.ops, attrs, targets, seed).map_err(UsageError::from)?;
        Ok(Box::new(PhysicalWatch { monitor, held: self.held }))
    }
}

struct PhysicalWatch {
    monitor: Box<dyn Monitor<Ops = Physical>>,
    held: HeldProcesses,
}

impl Source for PhysicalWatch {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        self.monitor.step(now)
    }
}

impl Watch for PhysicalWatch {
    fn hold(&mut self) -> &mut dyn Hold {
        &mut self.held
    }

    /// The target is always physical memory.
    fn set_targets(&mut self, _: &[TargetId]) -> Result<(), WatchError> {
        Ok(())
    }

    fn attrs(&self) -> Option<Attrs> {
        Some(self.monitor.attrs())
    }

    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), WatchError> {
        Ok(self.monitor.set_attrs(attrs)?)
    }

    fn stop(&mut self) -> Result<(), WatchError> {
        self.monitor.stop();
        Ok(())
    }
}
