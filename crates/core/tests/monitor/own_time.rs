//! Ways to look that clear all memory at once, at their own times.

use isotherm_core::{Attrs, Heat, Nanos, RegionSampler, Seen, Thresholds};

use crate::{Spoiled, a_quarter_hot, bytes_where, machine, mean_hz, mib};

const EPOCH: u64 = 40_000_000;

/// Changes the result as if all bits had been cleared 40 ms before they were read, and `later` pages of each
/// window were touched since.
fn in_epochs(seen: &mut Seen, later: u32) {
    seen.since = Some(Nanos(seen.read_at.0.saturating_sub(EPOCH)));
    seen.later = later.min(seen.present - seen.young);
}

#[test]
fn exposure_counts_from_the_time_of_the_answer() {
    let (ops, target) = machine(1, a_quarter_hot);
    let spoiled = Spoiled { ops: ops.clone(), spoil: |_: &_, seen: &mut Seen| in_epochs(seen, 0) };
    let mut monitor = RegionSampler::new(spoiled, Attrs::default(), &[target], 1).unwrap();
    let snapshots = isotherm_sim::run(&mut monitor, &ops, crate::seconds(6.0)).unwrap();
    // Touched at 100 Hz within 20 ms, and reported so within 40 ms.
    let view = &snapshots.last().unwrap().targets[0];
    let hz = mean_hz(view, mib(16, 16));
    assert!((40.0..65.0).contains(&hz), "{hz} Hz");
    let t = Thresholds::default();
    assert_eq!(bytes_where(view, mib(40, 24), |r| r.heat(&t) == Heat::Cold), 24 << 20);
}

#[test]
fn late_touches_are_not_cold() {
    let (ops, target) = machine(1, a_quarter_hot);
    let spoiled = Spoiled { ops: ops.clone(), spoil: |_: &_, seen: &mut Seen| in_epochs(seen, 3) };
    let mut monitor = RegionSampler::new(spoiled, Attrs::default(), &[target], 1).unwrap();
    let snapshots = isotherm_sim::run(&mut monitor, &ops, crate::seconds(8.0)).unwrap();
    let view = &snapshots.last().unwrap().targets[0];
    let t = Thresholds::default();
    assert_eq!(bytes_where(view, mib(0, 64), |r| r.heat(&t) == Heat::Cold), 0);
    assert_eq!(bytes_where(view, mib(40, 24), |r| r.heat(&t) == Heat::Warm), 24 << 20);
}
