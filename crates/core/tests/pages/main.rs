//! The page scan over a simulated machine with known truth.

// The lints that clippy permits in tests, for their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod mappings;
mod patterns;
#[path = "../scene/mod.rs"]
mod scene;
#[allow(dead_code)]
#[path = "../exposure/tapped.rs"]
mod tapped;
mod targets;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, Monitor, MonitorKind, Nanos, PAGE_SIZE, RegionView, Snapshot, TargetId,
    TargetView, watch,
};
use isotherm_sim::{Machine, MappingSpec, Ops, Scores, TouchPattern, run, score};
use scene::{MIB, machine, mib, pages, poisson, seconds};
use tapped::Tapped;

fn every_ms(ms: u64) -> TouchPattern {
    TouchPattern::Periodic { every: Duration::from_millis(ms) }
}

fn attrs() -> Attrs {
    Attrs { monitor: MonitorKind::Pages, ..Attrs::default() }
}

type Watching = Box<dyn Monitor<Ops = Ops>>;

fn monitor(ops: &Ops, targets: &[TargetId]) -> Watching {
    watch(ops.clone(), attrs(), targets, 1).unwrap()
}

fn run_until(monitor: &mut Watching, ops: &Ops, s: f64) -> Vec<Arc<Snapshot>> {
    run(&mut **monitor, ops, seconds(s)).unwrap()
}

/// Snapshots of a machine that `lay` creates, until a time.
fn watched(
    s: f64,
    attrs: Attrs,
    lay: impl FnOnce(&mut Machine, TargetId),
) -> (Vec<Arc<Snapshot>>, Ops, TargetId) {
    let (ops, target) = machine(1, lay);
    let mut monitor = watch(ops.clone(), attrs, &[target], 1).unwrap();
    let snapshots = run_until(&mut monitor, &ops, s);
    (snapshots, ops, target)
}

fn scores(s: &Snapshot, ops: &Ops, target: TargetId) -> Scores {
    let truth = ops.machine().truth(target).unwrap().ground(s.start, s.end);
    score(&truth, s, target).unwrap()
}

/// The region that contains the first page of `range`.
fn region_at(view: &TargetView, range: AddrRange) -> &RegionView {
    view.regions.iter().find(|r| r.range.contains(range.start)).unwrap()
}
