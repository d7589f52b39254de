use super::*;
use isotherm_core::{EndReason, Source, Step};

#[test]
fn the_end_of_the_last_target_ends_the_monitor() {
    let (ops, target) = machine(1, a_quarter_hot);
    let other = ops.machine().spawn();
    ops.machine().map(other, mib(0, 8), MappingSpec::anonymous()).unwrap();
    let mut monitor = monitor(&ops, &[target, other]);
    run_until(&mut monitor, &ops, 2.5);
    ops.machine().end(target).unwrap();
    let left = run_until(&mut monitor, &ops, 4.5);
    let ids: Vec<_> = left.last().unwrap().targets.iter().map(|t| t.id).collect();
    assert_eq!(ids, [other]);
    ops.machine().end(other).unwrap();
    run_until(&mut monitor, &ops, 6.0);
    let now = ops.machine().now();
    assert!(now < seconds(5.6), "noticed at the next update, not at {now:?}");
    for _ in 0..2 {
        assert!(matches!(monitor.step(now).unwrap(), Step::End(EndReason::TargetsGone)));
    }
}

#[test]
fn a_target_that_is_gone_from_the_start_ends_the_monitor_at_once() {
    let (ops, target) = machine(1, |m, t| m.end(t).unwrap());
    let mut monitor = monitor(&ops, &[target]);
    assert!(matches!(monitor.step(Nanos(0)).unwrap(), Step::End(EndReason::TargetsGone)));
}

#[test]
fn an_unknown_target_is_an_error() {
    let (ops, _) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[TargetId(77)]);
    assert_eq!(monitor.step(Nanos(0)).unwrap_err(), OpsError::NoTarget(TargetId(77)));
}

/// The new address space is mapped at the same place. Nothing that was known of the old one applies to it.
#[test]
fn exec_voids_earlier_rates() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[target]);
    let before = run_until(&mut monitor, &ops, 7.7).pop().unwrap();
    let old =
        |s: &Snapshot| bytes_where(&s.targets[0], mib(0, 64), |r| r.age > Duration::from_secs(3));
    assert!(old(&before) > 40 * MIB);
    ops.machine().exec(target).unwrap();
    ops.machine().map(target, mib(0, 64), MappingSpec::anonymous().on_touch()).unwrap();
    let after = run_until(&mut monitor, &ops, 10.0);
    let first = after.iter().find(|s| s.start >= seconds(8.0)).unwrap();
    assert_eq!(old(first), 0, "{first:#?}");
    assert!(mean_hz(&first.targets[0], mib(18, 12)) < 1.0);
}
