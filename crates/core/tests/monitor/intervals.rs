//! Tuning of the intervals towards a share of observed accesses.

use isotherm_core::{IntervalsGoal, IntervalsTuner, Source, Step};

use super::*;

/// The sampling interval that a monitor reaches within 5 minutes, if all memory is touched at `hz`.
fn reached(hz: f64, sample_ms: u64) -> Duration {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 64), poisson(hz)).unwrap();
    });
    let sample = Duration::from_millis(sample_ms);
    let attrs = Attrs { sample, aggr: sample * 20, ..Attrs::default() }.by_the_kernels_rules();
    let mut monitor = RegionSampler::new(ops.clone(), attrs, &[target], 1).unwrap();
    let goal = IntervalsGoal {
        access_bp: 400,
        aggrs: 3,
        min_sample: Duration::from_millis(5),
        max_sample: Duration::from_secs(10),
    };
    let mut tuner = IntervalsTuner::new(goal);
    loop {
        let now = ops.machine().now();
        match monitor.step(now).unwrap() {
            Step::Snapshot(s) => {
                if let Some(attrs) = tuner.next(&s) {
                    assert_eq!(attrs.samples(), 20);
                    monitor.set_attrs(attrs).unwrap();
                }
            }
            Step::Wait(next) if next <= seconds(300.0) => ops.machine().advance_to(next),
            Step::Wait(_) => return monitor.attrs().sample,
            Step::End(why) => panic!("{why:?}"),
        }
    }
}

/// A page that is touched at 1 Hz is found touched in 4 % of the intervals if they last 41 ms.
#[test]
fn intervals_are_tuned_until_the_share_is_observed() {
    for start in [5, 200] {
        let sample = reached(1.0, start).as_millis();
        assert!((28..=60).contains(&sample), "{sample} ms, from {start} ms on");
    }
    assert_eq!(reached(200.0, 100), Duration::from_millis(5), "the shortest");
}
