//! How right the monitors are about workloads: watched, scored, and told in one table.

mod options;
mod real;
mod row;
mod table;

use std::sync::Arc;

use anyhow::Result;
use isotherm_core::{Snapshot, TargetId};
use isotherm_sim::workload::{Layout, Schedule, Workload, play};
use isotherm_sim::{GroundTruth, MachineKind};

use crate::setups::Setup;

pub use options::Options;
pub use row::{Row, row};
pub use table::{head, line};

/// A workload as it was watched.
pub struct Watched {
    /// by the monitor
    pub snapshots: Vec<Arc<Snapshot>>,
    /// which target of the snapshots it was
    pub target: TargetId,
    /// what was so
    pub truth: GroundTruth,
    /// own CPU time over time, of 0 to 1, from when memory can be cold on; none where there is none
    pub own_cpu: Option<f64>,
    /// of the record on disk; none where there is none
    pub record_bytes: Option<u64>,
}

/// Watches a workload on one kind of machine in one way.
///
/// # Errors
/// If it cannot be run or watched.
pub fn watch(
    o: &Options,
    setup: &Setup,
    machine: MachineKind,
    name: &str,
    w: &Workload,
) -> Result<Watched> {
    match machine {
        MachineKind::Real => real::watch(setup, o.seed, name, o.length(w)),
        MachineKind::Simulated => simulated(o, setup, name, w),
    }
}

fn simulated(o: &Options, setup: &Setup, name: &str, w: &Workload) -> Result<Watched> {
    let schedule = Schedule::new(w, &Layout::new(w, o.seed), Some(o.length(w)))?;
    let played = play((name, w), &schedule, o.seed, setup.attrs)?;
    Ok(Watched {
        snapshots: played.snapshots,
        target: played.target,
        truth: played.truth,
        own_cpu: None,
        record_bytes: None,
    })
}
