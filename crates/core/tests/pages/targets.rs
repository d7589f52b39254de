use super::*;
use isotherm_core::{EndReason, Step};

#[test]
fn targets_come_and_go() {
    let (ops, first) = machine(1, |m, t| m.map(t, mib(0, 8), MappingSpec::anonymous()).unwrap());
    let other = ops.machine().spawn();
    ops.machine().map(other, mib(0, 8), MappingSpec::anonymous()).unwrap();
    ops.machine().touch(other, mib(2, 1), every_ms(10)).unwrap();
    let mut monitor = monitor(&ops, &[first]);
    let ids = |s: &Snapshot| s.targets.iter().map(|t| t.id).collect::<Vec<_>>();
    assert_eq!(ids(run_until(&mut monitor, &ops, 2.0).last().unwrap()), [first]);
    monitor.set_targets(&[other, first]);
    let s = run_until(&mut monitor, &ops, 4.0).pop().unwrap();
    assert_eq!(ids(&s), [first, other]);
    assert_eq!(s.targets[0].regions[0].age, s.end.since(Nanos(0)), "what is known is kept");
    assert_eq!(region_at(&s.targets[1], mib(2, 1)).range, mib(2, 1));
    assert_eq!(s.targets[1].ran, Some(Duration::from_millis(400)));
    monitor.set_targets(&[other]);
    assert_eq!(ids(run_until(&mut monitor, &ops, 5.0).last().unwrap()), [other]);
    ops.machine().end(other).unwrap();
    run_until(&mut monitor, &ops, 9.0);
    let now = ops.machine().now();
    assert!(now < seconds(6.5), "{now:?}");
    assert!(matches!(monitor.step(now).unwrap(), Step::End(EndReason::TargetsGone)));
}

#[test]
fn a_monitor_outlives_its_targets_on_request() {
    let (ops, target) = machine(1, |m, t| m.end(t).unwrap());
    let mut monitor = monitor(&ops, &[target]);
    monitor.outlive_targets();
    let snapshots = run_until(&mut monitor, &ops, 2.0);
    assert_eq!(snapshots.len(), 5);
    assert!(snapshots.iter().all(|s| s.targets.is_empty()));
    monitor.stop();
    assert!(matches!(monitor.step(seconds(2.0)).unwrap(), Step::End(EndReason::Stopped)));
}

#[test]
fn new_attributes_begin_a_new_interval() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 8), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(2, 1), every_ms(20)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    let before = run_until(&mut monitor, &ops, 2.1).pop().unwrap();
    let ms = Duration::from_millis;
    monitor.set_attrs(Attrs { sample: ms(10), aggr: ms(100), ..attrs() }).unwrap();
    let after = run_until(&mut monitor, &ops, 3.0).remove(1);
    assert_eq!((after.seq, after.end.since(after.start)), (before.seq + 2, ms(100)));
    let of = |s: &Snapshot, at| *region_at(&s.targets[0], mib(at, 1));
    assert_eq!((of(&before, 2).accesses_bp, of(&after, 2).accesses_bp), (10_000, 5_000));
    assert_eq!(of(&after, 4).age, after.end.since(Nanos(0)));
    assert!(monitor.set_attrs(Attrs { min_regions: 0, ..attrs() }).is_err());
}

#[test]
fn a_seed_and_a_machine_give_the_same_snapshots() {
    let history = |seed| {
        let (ops, target) = machine(seed, |m, t| {
            m.map(t, mib(0, 8), MappingSpec::anonymous()).unwrap();
            m.touch(t, mib(2, 2), poisson(20.0)).unwrap();
        });
        run_until(&mut monitor(&ops, &[target]), &ops, 3.0)
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}
