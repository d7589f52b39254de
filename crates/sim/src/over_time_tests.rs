use std::sync::Arc;

use isotherm_core::{
    AddrRange, Attrs, BLOCK_SIZE, Cost, Rate, RegionView, TargetView, UnknownPages,
};

use super::*;
use crate::ground_truth::{IntervalTruth, testing};

const TARGET: TargetId = TargetId(3);
const SECOND: u64 = 1_000_000_000;
const HOT: u64 = 40;
const WARM: u64 = 2;

fn hz_of(rates: [u64; 2]) -> [f32; 2] {
    rates.map(|hz| hz as f32)
}

/// Two blocks over three seconds: the rates change after the second one.
fn truth(before: [u64; 2], after: [u64; 2]) -> GroundTruth {
    let interval = |start: u64, phase: &str, hz: [u64; 2]| IntervalTruth {
        start_ns: start * SECOND,
        end_ns: (start + 1) * SECOND,
        phase: phase.to_owned(),
        touches: hz.map(|hz| hz * 512).to_vec(),
        touched: vec![512; 2],
        idle: vec![0; 2],
    };
    let intervals = vec![
        interval(0, "before", before),
        interval(1, "before", before),
        interval(2, "after", after),
    ];
    testing::truth(vec![testing::block(0, 1), testing::block(1, 1)], intervals)
}

fn snapshot(start_ms: u64, end_ms: u64, hz: [f32; 2]) -> Snapshot {
    let region = |(i, hz): (u64, f32)| RegionView {
        range: AddrRange::new(i * BLOCK_SIZE, (i + 1) * BLOCK_SIZE),
        accesses_bp: 0,
        age: Duration::ZERO,
        rate: Rate { hz, low: hz, high: hz },
        touched_bp: 10_000,
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: None,
    };
    let regions = (0..).zip(hz).map(region).collect();
    let view = TargetView {
        id: TARGET,
        ran: None,
        mappings: Arc::default(),
        left_out: 0,
        dirty: None,
        regions,
        ages: None,
    };
    let (start, end) = (Nanos(start_ms * 1_000_000), Nanos(end_ms * 1_000_000));
    let (attrs, cost) = (Attrs::default(), Cost::default());
    Snapshot { seq: 0, start, end, attrs, cost, quality: None, targets: vec![view] }
}

fn scored(truth: &GroundTruth, settle_ms: u64, snapshots: &[Snapshot]) -> OverTime {
    let mut moments = Moments::new(truth, Duration::from_millis(settle_ms));
    snapshots.iter().for_each(|s| moments.push(truth, s, TARGET, Nanos(0)));
    moments.finish()
}

#[test]
fn late_detection_costs_the_moments_before_it() {
    let truth = truth([HOT, WARM], [WARM, HOT]);
    let (before, after) = (hz_of([HOT, WARM]), hz_of([WARM, HOT]));
    // The change at 2 s shows from 2.5 s on.
    let late = [snapshot(0, 2500, before), snapshot(2500, 3000, after)];
    let all = |f1: Option<f64>| F1 { hot: f1, warm: f1 };
    let with = |settle_ms| scored(&truth, settle_ms, &late);
    // 25 of 30 moments, in each of which one block is hot.
    assert_eq!(with(0).all, all(Some(25.0 / 30.0)));
    let seconds: Vec<(f64, F1)> = with(0).seconds.iter().map(|s| (s.at, s.f1)).collect();
    let right = all(Some(1.0));
    assert_eq!(seconds, [(0.0, right), (1.0, right), (2.0, all(Some(0.5)))]);
    // 19 and 9 moments are left, of which 4 are wrong; then none is.
    assert_eq!(with(100).all, all(Some(24.0 / 28.0)));
    assert_eq!(with(500).all, right);
    assert_eq!(with(5000).all, all(None));
}

#[test]
fn a_long_snapshot_that_smears_is_wrong_where_it_does() {
    let truth = truth([HOT, 0], [0, 0]);
    let smeared = scored(&truth, 0, &[snapshot(0, 3000, hz_of([HOT, 0]))]);
    // Hot in 30 moments, and so in 20: 2 * 20 / (30 + 20).
    assert_eq!(smeared.all, F1 { hot: Some(0.8), warm: None });
}

#[test]
fn moments_before_the_record_and_behind_it_do_not_count() {
    let truth = truth([HOT, WARM], [HOT, WARM]);
    let mut moments = Moments::new(&truth, Duration::ZERO);
    moments.push(&truth, &snapshot(1000, 1500, hz_of([HOT, WARM])), TARGET, Nanos(SECOND));
    let ats: Vec<f64> = moments.finish().seconds.iter().map(|s| s.at).collect();
    assert_eq!(ats, [1.0]);
}
