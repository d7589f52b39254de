//! The exposure monitor over a simulated machine with known truth.

// The lints that clippy permits in tests, for their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod ages;
mod budget;
mod calibration;
mod calm;
mod changes;
mod drawn;
mod field;
mod meddling;
mod page_ages;
mod restraint;
mod rests;
#[path = "../scene/mod.rs"]
mod scene;
mod schemes;
mod support;
mod tapped;
mod terabytes;
mod what_is_seen;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, Exposure, Heat, Nanos, PAGE_SIZE, RegionView, Snapshot, TargetId, TargetView,
    Thresholds,
};
use isotherm_sim::{Machine, MappingSpec, Ops, TouchPattern, run};
use scene::{BASE, MIB, a_quarter_hot, machine, mib, pages, poisson, seconds};
use tapped::{Event, Tapped};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn monitor(tapped: Tapped, attrs: Attrs, targets: &[TargetId]) -> Exposure<Tapped> {
    Exposure::new(tapped, attrs, targets, 1).unwrap()
}

fn run_until(monitor: &mut Exposure<Tapped>, ops: &Ops, s: f64) -> Vec<Arc<Snapshot>> {
    run(monitor, ops, seconds(s)).unwrap()
}

/// Snapshots of one target until a time, and the requests of the monitor.
fn watched(
    s: f64,
    attrs: Attrs,
    ops: &Ops,
    target: TargetId,
    tap: impl FnOnce(&mut Tapped),
) -> (Vec<Arc<Snapshot>>, Vec<Event>) {
    let mut tapped = Tapped::new(ops);
    tap(&mut tapped);
    let log = tapped.log.clone();
    let mut monitor = monitor(tapped, attrs, &[target]);
    let snapshots = run_until(&mut monitor, ops, s);
    let events = log.take();
    (snapshots, events)
}

/// Bytes of `range` in regions of `view` for which `holds`.
fn bytes_where(view: &TargetView, range: AddrRange, holds: impl Fn(&RegionView) -> bool) -> u64 {
    let regions = view.regions.iter().filter(|r| holds(r));
    regions.filter_map(|r| r.range.intersect(&range)).map(|r| r.len()).sum()
}

/// The share of `range` that is reported with this heat, from 0 to 1.
fn called(s: &Snapshot, range: AddrRange, heat: Heat) -> f64 {
    let is = |r: &RegionView| r.heat(&Thresholds::default()) == heat && r.unknown_bp.total() == 0;
    bytes_where(&s.targets[0], range, is) as f64 / range.len() as f64
}

/// The rate of the range: the mean of its regions, weighted by bytes.
fn mean_hz(view: &TargetView, range: AddrRange) -> f64 {
    let parts = view.regions.iter().filter_map(|r| Some((r, r.range.intersect(&range)?)));
    let hz = |r: &RegionView| f64::from(r.rate.hz) * f64::from(r.touched_bp) / 1e4;
    parts.map(|(r, part)| hz(r) * part.len() as f64).sum::<f64>() / range.len() as f64
}

/// The mean of that over the last `n` snapshots.
fn mean_hz_of_last(snapshots: &[Arc<Snapshot>], n: usize, range: AddrRange) -> f64 {
    let last = snapshots.iter().rev().take(n);
    last.map(|s| mean_hz(&s.targets[0], range)).sum::<f64>() / n as f64
}
