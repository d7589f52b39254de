//! Runs a workload on a simulated machine, watched by a monitor.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, AttrsError, Nanos, OpsError, Snapshot, TargetId, Unknown, watch,
};

use super::layout::{MemoryKind, Owner, WorkloadLayout};
use super::schedule::{Schedule, Slot};
use super::walk::{region_key, zipf_shares};
use super::{Access, ISLAND_HZ, Order, Workload};
use crate::ground_truth::{GroundTruth, MachineKind, Stretch, TRUTH_VERSION};
use crate::machine::{Machine, SimError};
use crate::ops::Ops;
use crate::pattern::TouchPattern;
use crate::run::run;
use crate::truth::idle_ns;

/// Start of the memory: a multiple of 2 MiB, as on the real machine.
const BASE: u64 = 0x7f00_0000_0000;

/// The output of a monitor for a workload, and the truth.
#[derive(Debug)]
pub struct MonitorRun {
    /// in order of time
    pub snapshots: Vec<Arc<Snapshot>>,
    /// the target of the snapshots
    pub target: TargetId,
    /// the true accesses over the same time
    pub truth: GroundTruth,
}

/// The reason for which a workload could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// an error of the machine
    #[error("the simulated machine refuses the workload: {0}")]
    Machine(#[from] SimError),
    /// invalid attributes of the monitor
    #[error(transparent)]
    Attrs(#[from] AttrsError),
    /// an error of the operations set
    #[error("the monitor of the simulated machine failed: {0}")]
    Ops(#[from] OpsError),
}

/// Runs a workload in virtual time, for the whole `schedule`, while a monitor watches.
///
/// # Errors
/// If the attributes are invalid, or the machine refuses the workload.
pub fn play(
    (name, workload): (&str, &Workload),
    schedule: &Schedule,
    seed: u64,
    attrs: Attrs,
) -> Result<MonitorRun, PlayError> {
    let layout = WorkloadLayout::new(workload, seed);
    let stretches = layout.stretches(workload, BASE);
    let (ops, target) = lay(&layout, seed)?;
    let mut monitor = watch(ops.clone(), attrs, &[target], seed)?;
    let (mut snapshots, mut intervals) = (Vec::new(), Vec::new());
    for slot in &schedule.slots {
        let phase = &workload.phases[slot.phase];
        for access in &phase.accesses {
            touch(&mut ops.machine(), target, workload, access, &layout, seed)?;
        }
        snapshots.extend(run(&mut *monitor, &ops, nanos(slot.end()))?);
        let mut machine = ops.machine();
        let truth = machine.truth(target)?;
        for (from, to) in spans(slot) {
            intervals.push(truth.interval(&stretches, &phase.name, nanos(from), nanos(to)));
        }
        for access in &phase.accesses {
            machine.rest(target, range_of(workload, access, &layout))?;
        }
    }
    let truth = GroundTruth {
        schema_version: TRUTH_VERSION,
        workload: name.to_owned(),
        seed,
        machine: MachineKind::Simulated,
        populated_ns: 0,
        idle_ns: idle_ns(),
        stretches,
        intervals,
    };
    Ok(MonitorRun { snapshots, target, truth })
}

fn nanos(d: Duration) -> Nanos {
    Nanos(0) + d
}

/// The intervals of a slot.
fn spans(slot: &Slot) -> impl Iterator<Item = (Duration, Duration)> + '_ {
    let begins = std::iter::once(&slot.start).chain(&slot.cuts);
    begins.zip(&slot.cuts).map(|(&from, &to)| (from, to))
}

/// A machine with the memory of a layout. At first only the islands are touched.
fn lay(layout: &WorkloadLayout, seed: u64) -> Result<(Ops, TargetId), SimError> {
    let mut machine = Machine::new(seed);
    let target = machine.spawn();
    for (range, memory) in layout.mappings() {
        let range = shifted(range);
        let mapped = crate::MappingSpec::anonymous();
        let mapped = if memory == MemoryKind::Huge { mapped.huge() } else { mapped };
        machine.map(target, range, mapped)?;
        if memory == MemoryKind::Shared {
            machine.set_unknown(target, range, Some(Unknown::Shared))?;
        }
    }
    for island in layout.parts.iter().filter(|p| p.of == Owner::Island) {
        machine.touch(target, shifted(island.range), TouchPattern::Poisson { hz: ISLAND_HZ })?;
    }
    Ok((Ops::new(machine), target))
}

fn shifted(range: AddrRange) -> AddrRange {
    AddrRange::new(BASE + range.start, BASE + range.end)
}

fn range_of(workload: &Workload, access: &Access, layout: &WorkloadLayout) -> AddrRange {
    let region = workload.region_index(&access.region).unwrap_or(0);
    shifted(layout.range(Owner::Region(region)))
}

fn touch(
    machine: &mut Machine,
    target: TargetId,
    workload: &Workload,
    access: &Access,
    layout: &WorkloadLayout,
    seed: u64,
) -> Result<(), SimError> {
    let range = range_of(workload, access, layout);
    let region = workload.region_index(&access.region).unwrap_or(0);
    machine.touch(target, range, pattern(access, range.len(), region_key(seed, region)))
}

/// The pattern of an access to `bytes` of memory.
fn pattern(access: &Access, bytes: u64, key: u64) -> TouchPattern {
    let hz = access.rate.hz();
    let sweep = || TouchPattern::Sweep { every: Duration::from_secs_f64(1.0 / hz) };
    match access.order {
        Order::Random => TouchPattern::Poisson { hz },
        Order::Sequential => sweep(),
        Order::Strided { stride } => TouchPattern::Sparse { nth: stride, of: Box::new(sweep()) },
        Order::Zipf { exponent, block } => {
            let blocks = usize::try_from(bytes / block.max(1)).unwrap_or(usize::MAX);
            let shares = zipf_shares(blocks, exponent, key).into_iter();
            TouchPattern::Blocks { block, hz: shares.map(|s| s * blocks as f64 * hz).collect() }
        }
        // As on the real machine, all touches of the region are in the window.
        Order::Moving { window, every } => TouchPattern::Moving { window, every, hz },
    }
}

impl WorkloadLayout {
    /// Its parts as stretches of the truth, with offset 0 at `base`.
    #[must_use]
    pub fn stretches(&self, workload: &Workload, base: u64) -> Vec<Stretch> {
        let stretch = |part: &super::Part| {
            let (name, stride) = match part.of {
                Owner::Cold => ("cold", 1),
                Owner::Island => ("island", 1),
                Owner::Region(i) => {
                    let stride = workload.accesses_of(i).map(|a| a.order.stride()).next();
                    (workload.regions[i].name.as_str(), stride.unwrap_or(1))
                }
            };
            let (start, end) = (base + part.range.start, base + part.range.end);
            let huge = part.memory == MemoryKind::Huge;
            Stretch { start, end, name: name.to_owned(), stride, huge }
        };
        self.parts.iter().map(stretch).collect()
    }
}
