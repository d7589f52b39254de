//! The exposure monitor over a simulated machine, whose truth is known.

// What clippy allows in tests, for their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod ages;
mod budget;
mod calibration;
mod changes;
mod meddling;
mod restraint;
mod tapped;
mod what_is_seen;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, Exposure, Heat, Nanos, PAGE_SIZE, RegionView, Snapshot, TargetId, TargetView,
    Thresholds,
};
use isotherm_sim::{Machine, Memory, Ops, Pattern, run};
use tapped::{Event, Tapped};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

/// The stretch of `len` pages, `at` pages behind the base.
fn pages(at: u64, len: u64) -> AddrRange {
    AddrRange::new(BASE + at * PAGE_SIZE, BASE + (at + len) * PAGE_SIZE)
}

/// The stretch of `len` MiB, `at` MiB behind the base.
fn mib(at: u64, len: u64) -> AddrRange {
    pages(at * 256, len * 256)
}

fn poisson(hz: f64) -> Pattern {
    Pattern::Poisson { hz }
}

fn seconds(s: f64) -> Nanos {
    Nanos((s * 1e3).round() as u64 * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A machine with one target, as `lay` makes it.
fn machine(seed: u64, lay: impl FnOnce(&mut Machine, TargetId)) -> (Ops, TargetId) {
    let mut machine = Machine::new(seed);
    let target = machine.spawn();
    lay(&mut machine, target);
    (Ops::new(machine), target)
}

/// 64 MiB, of which the second quarter is hot.
fn a_quarter_hot(machine: &mut Machine, target: TargetId) {
    machine.map(target, mib(0, 64), Memory::anonymous()).unwrap();
    machine.touch(target, mib(16, 16), poisson(100.0)).unwrap();
}

fn monitor(tapped: Tapped, attrs: Attrs, targets: &[TargetId]) -> Exposure<Tapped> {
    Exposure::new(tapped, attrs, targets, 1).unwrap()
}

fn run_until(monitor: &mut Exposure<Tapped>, ops: &Ops, s: f64) -> Vec<Arc<Snapshot>> {
    run(monitor, ops, seconds(s)).unwrap()
}

/// Snapshots of one target up to a time, and what was asked for.
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

/// Of `range`, the share that is called so, of 0 to 1.
fn called(s: &Snapshot, range: AddrRange, heat: Heat) -> f64 {
    let is = |r: &RegionView| r.heat(&Thresholds::default()) == heat && r.unknown_bp.total() == 0;
    bytes_where(&s.targets[0], range, is) as f64 / range.len() as f64
}

/// The range's rate, as the mean of the regions' by bytes.
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
