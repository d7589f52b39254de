//! Accuracy of the monitors: watches workloads, scores the results, and prints them in one table.

mod options;
mod real;
mod row;
mod table;

use std::sync::Arc;

use anyhow::Result;
use isotherm_core::{Snapshot, TargetId};
use isotherm_sim::workload::{Schedule, Workload, WorkloadLayout, play};
use isotherm_sim::{GroundTruth, MachineKind};

use crate::setups::MonitorSetup;

pub use options::Options;
pub use row::{Row, row};
pub use table::{head, line};

/// The results of watching a workload.
pub struct Observation {
    /// snapshots of the monitor
    pub snapshots: Vec<Arc<Snapshot>>,
    /// the workload's target in the snapshots
    pub target: TargetId,
    /// ground truth
    pub truth: GroundTruth,
    /// CPU time of the monitor as a fraction of one CPU, from the time at which memory can be cold; `None` if
    /// not measured
    pub own_cpu: Option<f64>,
    /// size of the record on disk; `None` if there is no record
    pub record_bytes: Option<u64>,
}

/// Watches a workload on one kind of machine in one way.
pub fn watch(
    o: &Options,
    setup: &MonitorSetup,
    machine: MachineKind,
    name: &str,
    w: &Workload,
) -> Result<Observation> {
    match machine {
        MachineKind::Real => real::watch(setup, o.seed, name, o.length(w)),
        MachineKind::Simulated => simulated(o, setup, name, w),
    }
}

fn simulated(o: &Options, setup: &MonitorSetup, name: &str, w: &Workload) -> Result<Observation> {
    let schedule = Schedule::new(w, &WorkloadLayout::new(w, o.seed), Some(o.length(w)))?;
    let played = play((name, w), &schedule, o.seed, setup.attrs)?;
    Ok(Observation {
        snapshots: played.snapshots,
        target: played.target,
        truth: played.truth,
        own_cpu: None,
        record_bytes: None,
    })
}
