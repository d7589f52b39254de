use super::*;
use isotherm_core::{Source, Step, Target};

/// Three targets of 64 MiB; of the i-th, 8 MiB are hot from i x 16 MiB on.
fn three() -> (Ops, Vec<TargetId>) {
    let mut m = Machine::new(1);
    let targets: Vec<_> = (0..3).map(|_| m.spawn()).collect();
    for (i, &t) in targets.iter().enumerate() {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(i as u64 * 16, 8), poisson(100.0)).unwrap();
    }
    (Ops::new(m), targets)
}

#[test]
fn several_targets_are_distinguished() {
    let (ops, targets) = three();
    let mut monitor = monitor(&ops, &[targets[2], targets[0], targets[1]]);
    for s in run_until(&mut monitor, &ops, 6.0).iter().filter(|s| s.start > seconds(3.0)) {
        assert_eq!(s.targets.iter().map(|t| t.id).collect::<Vec<_>>(), targets);
        for &target in &targets {
            let score = score_hot(s, &ops, target);
            assert!(score.precision() > Some(0.95) && score.recall() > Some(0.95), "{score:?}");
        }
        assert!(s.targets.iter().all(|t| t.ran == Some(s.end.since(s.start))));
    }
}

#[test]
fn changing_targets_keeps_the_rates_of_the_others() {
    let (ops, targets) = three();
    let mut monitor = monitor(&ops, &targets[..2]);
    run_until(&mut monitor, &ops, 6.1);
    let known = monitor.targets()[1].regions().to_vec();
    monitor.set_targets(&targets[1..]);
    assert_eq!(monitor.targets().iter().map(Target::id).collect::<Vec<_>>(), targets[1..]);
    assert_eq!(monitor.targets()[0].regions(), known);
    let s = run_until(&mut monitor, &ops, 6.5).pop().unwrap();
    assert_eq!(s.targets.iter().map(|t| t.id).collect::<Vec<_>>(), targets[1..]);
    let old = |i: usize| bytes_where(&s.targets[i], mib(0, 64), |r| r.age > Duration::from_secs(5));
    assert!(old(0) > 48 * MIB, "{} MiB", old(0) / MIB);
    assert_eq!(old(1), 0);
    // The new one is looked at from the next step on: before half of the interval was over.
    assert!(mean_hz(&s.targets[1], mib(34, 4)) > 30.0);
}

/// Monitors clear each other's bits: a page that another one has cleared gives information only about the
/// time since. If they step together, as here, the last one even reads nothing in a window that another has
/// just chosen too. In regions of a hundred windows that is rare, and all find the hot memory. In regions as
/// small as a window it would be usual.
#[test]
fn several_monitors_share_a_machine() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 1024), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(300, 64), poisson(100.0)).unwrap();
    });
    let mut monitors: Vec<_> = (0..3)
        .map(|seed| RegionSampler::new(ops.clone(), Attrs::default(), &[target], seed).unwrap())
        .collect();
    let mut last = vec![None; 3];
    for tick in 0..300 {
        let now = Nanos(tick * 20_000_000);
        ops.machine().advance_to(now);
        for (monitor, last) in monitors.iter_mut().zip(&mut last) {
            while let Step::Snapshot(s) = monitor.step(now).unwrap() {
                *last = Some(s);
            }
        }
    }
    for s in last.into_iter().flatten() {
        assert!(s.end >= seconds(5.0), "{:?}", s.end);
        let score = score_hot(&s, &ops, target);
        assert!(score.precision() > Some(0.95) && score.recall() > Some(0.95), "{score:?}");
        let hz = mean_hz(&s.targets[0], mib(305, 54));
        // A settled region has few looks: if all pages were young, the rate is a guess that is too high.
        assert!((70.0..130.0).contains(&hz), "{hz:.0} Hz instead of 100");
    }
}
