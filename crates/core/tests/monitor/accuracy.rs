use super::*;
use isotherm_core::{Heat, Source, Step, Thresholds};

/// 1 GiB: 64 MiB at 100 Hz, 128 MiB once a second, the rest cold.
fn hot_warm_cold(machine: &mut Machine, target: TargetId) {
    machine.map(target, mib(0, 1024), MappingSpec::anonymous()).unwrap();
    machine.touch(target, mib(300, 64), poisson(100.0)).unwrap();
    machine.touch(target, mib(600, 128), poisson(1.0)).unwrap();
}

#[test]
fn hot_memory_is_found_within_two_seconds() {
    for seed in 0..3 {
        let (ops, target) = machine(seed, hot_warm_cold);
        let mut monitor =
            RegionSampler::new(ops.clone(), Attrs::default(), &[target], seed).unwrap();
        let snapshots = run_until(&mut monitor, &ops, 8.0);
        assert_eq!(snapshots.len(), 20);
        for s in snapshots.iter().filter(|s| s.start >= seconds(2.0)) {
            let score = score_hot(s, &ops, target);
            let (precision, recall) = (score.precision().unwrap(), score.recall().unwrap());
            assert!(
                precision >= 0.97 && recall >= 0.97 && score.real == 64 * MIB,
                "seed {seed}, snapshot {}: precision {precision:.3}, recall {recall:.3}, {} regions",
                s.seq,
                s.nr_regions(),
            );
        }
    }
}

#[test]
fn cold_memory_is_cold_once_it_is_old_enough() {
    let (ops, target) = machine(1, hot_warm_cold);
    let mut monitor = monitor(&ops, &[target]);
    let snapshots = run_until(&mut monitor, &ops, 12.0);
    let cold = |s: &Snapshot| s.bytes(&Thresholds::default()).cold / MIB;
    let young = snapshots.iter().take_while(|s| s.end < seconds(5.0));
    assert!(young.clone().count() > 10);
    young.for_each(|s| assert_eq!(cold(s), 0, "{:?}", s.end));
    let last = snapshots.last().unwrap();
    let found = cold(last);
    let heat = |r: &isotherm_core::RegionView| r.heat(&Thresholds::default());
    let wrong = bytes_where(&last.targets[0], mib(300, 64), |r| heat(r) == Heat::Cold)
        + bytes_where(&last.targets[0], mib(600, 128), |r| heat(r) == Heat::Cold);
    assert!((790..=840).contains(&found), "{found} of 832 MiB are called cold");
    assert!(wrong <= 8 * MIB, "{} MiB are called cold that are not", wrong / MIB);
}

#[test]
fn rates_are_right_over_two_decades() {
    let (ops, target) = machine(3, |m, t| {
        m.map(t, mib(0, 256), MappingSpec::anonymous()).unwrap();
        for (i, hz) in [1.0, 5.0, 20.0, 80.0].into_iter().enumerate() {
            m.touch(t, mib(i as u64 * 64, 32), poisson(hz)).unwrap();
        }
    });
    let mut monitor = monitor(&ops, &[target]);
    let snapshots = run_until(&mut monitor, &ops, 8.0);
    for (i, hz) in [1.0, 5.0, 20.0, 80.0].into_iter().enumerate() {
        let inner = mib(i as u64 * 64 + 4, 24);
        let found = mean_hz_of_last(&snapshots, 10, inner);
        // A watch that ends with the first touch overstates low rates, because there are few of them.
        let most = if hz < 2.0 { 0.4 } else { 0.25 };
        assert!((found / hz - 1.0).abs() < most, "{found:.2} Hz instead of {hz}");
    }
}

#[test]
fn a_moved_hot_window_is_followed() {
    let (ops, target) = machine(4, |m, t| {
        m.map(t, mib(0, 512), MappingSpec::anonymous()).unwrap();
        let every = Duration::from_secs(4);
        m.touch(t, mib(0, 512), TouchPattern::Moving { window: 32 * MIB, every, hz: 100.0 })
            .unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    let snapshots = run_until(&mut monitor, &ops, 12.0);
    for end in [8.0, 12.0] {
        let last = snapshots.iter().rfind(|s| s.end <= seconds(end)).unwrap();
        let score = score_hot(last, &ops, target);
        assert!(
            score.precision() > Some(0.95) && score.recall() > Some(0.95),
            "at {end} s: {score:?}"
        );
    }
}

#[test]
fn periodic_and_swept_memory_is_hot_by_its_rate() {
    let (ops, target) = machine(5, |m, t| {
        m.map(t, mib(0, 128), MappingSpec::anonymous()).unwrap();
        let pattern = |ms| Duration::from_millis(ms);
        m.touch(t, mib(0, 32), TouchPattern::Periodic { every: pattern(50) }).unwrap();
        m.touch(t, mib(64, 32), TouchPattern::Sweep { every: pattern(2000) }).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    let snapshots = run_until(&mut monitor, &ops, 4.0);
    let mean = |range| mean_hz_of_last(&snapshots, 5, range); // one sweep
    // 20 ms of 50 ms are 40 % of the pages: 25 Hz, if touches were random.
    let (periodic, swept) = (mean(mib(4, 24)), mean(mib(68, 24)));
    assert!((20.0..30.0).contains(&periodic), "{periodic:.1} Hz");
    assert!((0.1..2.0).contains(&swept), "{swept:.2} Hz");
}

/// Exposure is measured, so rates are right even if the caller is late and irregular.
#[test]
fn a_late_caller_gets_right_rates() {
    let (ops, target) = machine(6, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 64), poisson(10.0)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    let (mut found, mut turn) = (Vec::new(), 0);
    while found.len() < 10 {
        let now = ops.machine().now();
        match monitor.step(now).unwrap() {
            Step::Snapshot(s) => found.push(mean_hz(&s.targets[0], mib(0, 64))),
            Step::Wait(next) => {
                turn += 1;
                let late = Duration::from_millis([0, 3, 17, 40, 75][turn % 5]);
                ops.machine().advance_to(next + late);
            }
            Step::End(why) => panic!("{why:?}"),
        }
    }
    for hz in found {
        assert!((hz / 10.0 - 1.0).abs() < 0.2, "{hz:.2} Hz instead of 10");
    }
}
