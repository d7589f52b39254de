//! How well the monitors see the named workloads, on the simulated machine: the bounds that isotherm has set
//! itself for its default monitor (`docs/concepts/how-it-sees.md`).

// clippy allows these in tests; here also for their helpers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use isotherm_core::Attrs;
use isotherm_sim::workload::{Named, Schedule, WorkloadLayout, play};
use isotherm_sim::{Accuracy, AccuracyBuilder};

fn seen(name: &str, attrs: Attrs, seconds: u64) -> Accuracy {
    let workload = Named::find(name).unwrap().workload().unwrap();
    let length = Some(Duration::from_secs(seconds));
    let schedule = Schedule::new(&workload, &WorkloadLayout::new(&workload, 1), length).unwrap();
    let played = play((name, &workload), &schedule, 1, attrs).unwrap();
    let mut accuracy = AccuracyBuilder::new(&played.truth, played.target);
    played.snapshots.iter().for_each(|s| accuracy.push(s));
    accuracy.finish()
}

/// Rates, and what of it is hot and what warm, at 2 MiB.
fn is_seen_well(name: &str, error: f64) -> Accuracy {
    let all = seen(name, Attrs::default(), 20);
    let b = &all.blocks;
    let log2 = b.log2_error.run.unwrap();
    assert!(log2 <= error, "{name}: a log2 error of {log2:.2}");
    let correlation = b.correlation.run.unwrap();
    assert!(correlation >= 0.95, "{name}: a correlation of {correlation:.3}");
    for (heat, kind) in [("hot", &b.hot), ("warm", &b.warm)] {
        for (what, figures) in [("precision", kind.precision), ("recall", kind.recall)] {
            let share = figures.run.unwrap();
            assert!(share >= 0.95, "{name}, {heat}: a {what} of {share:.3}");
        }
    }
    intervals_hold(name, &all);
    all
}

fn intervals_hold(name: &str, all: &Accuracy) {
    let right = all.blocks.intervals_right.unwrap();
    assert!(right >= 0.9, "{name}: {right:.2} of the intervals hold the truth");
}

#[test]
fn a_ladder_of_rates_is_seen() {
    let regions = is_seen_well("rate-ladder", 0.6).regions;
    assert!(regions <= 2.0 * 65.0, "{regions:.0} regions of 65 stretches");
}

#[test]
fn a_zipf_order_is_seen() {
    is_seen_well("zipf", 0.3);
}

#[test]
fn each_sixteenth_page_is_seen() {
    is_seen_well("sparse", 1.2);
}

#[test]
fn hot_warm_and_cold_memory_is_seen() {
    is_seen_well("hot-warm-cold", 0.6);
}

/// A huge page has one bit, which is set as often as any page of it is touched.
#[test]
fn huge_pages_are_seen() {
    is_seen_well("thp", 0.6);
}

#[test]
fn intervals_hold_where_memory_moves() {
    for name in ["stairs", "moving-window", "phases"] {
        intervals_hold(name, &seen(name, Attrs::default(), 20));
    }
}

/// The kernel's rules: `docs/concepts/monitor.md`.
#[test]
fn shootdowns_are_a_two_hundredth_of_those_by_the_kernels_rules() {
    let kernel = Attrs {
        sample: Duration::from_millis(5),
        aggr: Duration::from_millis(100),
        min_regions: 10,
        ..Attrs::default()
    };
    let kernel = kernel.by_the_kernels_rules();
    for name in ["rate-ladder", "zipf"] {
        let clears = [kernel, Attrs::default()].map(|a| seen(name, a, 12).clears_per_second);
        assert!(clears[1] * 200.0 <= clears[0], "{name}: {clears:?} a second");
    }
}
