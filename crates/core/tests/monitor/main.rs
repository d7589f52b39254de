//! The monitor over a simulated machine with known truth.

// The lints that clippy permits in tests, for their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod accuracy;
mod attrs;
mod determinism;
mod gaps;
mod intervals;
mod liveness;
mod mappings;
mod own_time;
mod properties;
#[path = "../scene/mod.rs"]
mod scene;
mod targets;
mod unknown;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, Attrs, Cost, Liveness, Look, Mapping, Monitor, Nanos, OpsError, Region,
    RegionSampler, Seen, Snapshot, Space, TargetId, TargetView,
};
use isotherm_sim::{Machine, MappingSpec, Ops, Score, TouchPattern, run, score};
use scene::{MIB, a_quarter_hot, machine, mib, poisson, seconds};

fn monitor(ops: &Ops, targets: &[TargetId]) -> RegionSampler<Ops> {
    RegionSampler::new(ops.clone(), Attrs::default(), targets, 1).unwrap()
}

fn run_until(monitor: &mut RegionSampler<Ops>, ops: &Ops, s: f64) -> Vec<Arc<Snapshot>> {
    run(monitor, ops, seconds(s)).unwrap()
}

fn covered(regions: &[Region]) -> Vec<AddrRange> {
    isotherm_core::join_touching(regions.iter().map(|r| r.range))
}

/// The score of a target's hot bytes in a snapshot, against the truth.
fn score_hot(s: &Snapshot, ops: &Ops, target: TargetId) -> Score {
    let truth = ops.machine().truth(target).unwrap().ground(s.start, s.end);
    score(&truth, s, target).unwrap().hot
}

/// Bytes of `range` in regions of `view` for which `holds`.
fn bytes_where(
    view: &TargetView,
    range: AddrRange,
    holds: impl Fn(&isotherm_core::RegionView) -> bool,
) -> u64 {
    let regions = view.regions.iter().filter(|r| holds(r));
    regions.filter_map(|r| r.range.intersect(&range)).map(|r| r.len()).sum()
}

/// The rate of the range: the mean of its regions, weighted by bytes.
fn mean_hz(view: &TargetView, range: AddrRange) -> f64 {
    let parts = view.regions.iter().filter_map(|r| Some((r, r.range.intersect(&range)?)));
    let sum: f64 = parts.map(|(r, part)| f64::from(r.rate.hz) * part.len() as f64).sum();
    sum / range.len() as f64
}

/// The mean over the last `n` snapshots: each looks at a settled region only a few times.
fn mean_hz_of_last(snapshots: &[Arc<Snapshot>], n: usize, range: AddrRange) -> f64 {
    let last = snapshots.iter().rev().take(n);
    last.map(|s| mean_hz(&s.targets[0], range)).sum::<f64>() / n as f64
}

/// An operations set whose looks pass through `spoil`, which may drop or check them.
struct Spoiled<F> {
    ops: Ops,
    spoil: F,
}

impl<F> Space for Spoiled<F> {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        self.ops.mappings(target, out)
    }
    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        self.ops.ran(target)
    }
}

impl<F: FnMut(&Ask, &mut Seen)> Look for Spoiled<F> {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let cost = self.ops.look(asks, out)?;
        asks.iter().zip(out).for_each(|(ask, seen)| (self.spoil)(ask, seen));
        Ok(cost)
    }
}
