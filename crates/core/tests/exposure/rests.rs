use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;
use isotherm_core::Unknown;

/// By its clock the target runs at all times except from 5 s to 100 s.
fn paused(now: Nanos) -> Duration {
    let s = |s| seconds(s).0;
    Duration::from_nanos(now.0.min(s(5.0)) + now.0.saturating_sub(s(100.0)))
}

/// 64 MiB, of which the first 16 are hot until the target rests from 5 s on.
fn that_pauses(until: f64) -> (Ops, TargetId, Exposure<Tapped>, tapped::Log) {
    that_pauses_with(until, |_, _| {})
}

/// The same, with more memory that `map` maps.
fn that_pauses_with(
    until: f64,
    map: impl FnOnce(&mut Machine, TargetId),
) -> (Ops, TargetId, Exposure<Tapped>, tapped::Log) {
    let (ops, t) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        map(m, t);
        m.touch(t, mib(0, 16), poisson(100.0)).unwrap();
    });
    let mut tapped = Tapped::new(&ops);
    tapped.ran = Some(Box::new(paused));
    tapped.tells_activity = true;
    let log = tapped.log.clone();
    let mut monitor = monitor(tapped, Attrs::default(), &[t]);
    run_until(&mut monitor, &ops, 5.0);
    ops.machine().rest(t, mib(0, 16)).unwrap();
    run_until(&mut monitor, &ops, until);
    log.take();
    (ops, t, monitor, log)
}

fn readings(log: &tapped::Log) -> usize {
    log.take().iter().filter(|e| !e.clears && !e.ranges.is_empty()).count()
}

#[test]
fn a_target_at_rest_is_read_seldom_and_ages() {
    let (ops, _, mut monitor, log) = that_pauses(16.0);
    let snapshots = run_until(&mut monitor, &ops, 30.0);
    assert!((12..=30).contains(&snapshots.len()), "one each second: {} snapshots", snapshots.len());
    let readings = readings(&log);
    assert!((2..=5).contains(&readings), "{readings} readings");
    for s in &snapshots {
        assert!(called(s, mib(0, 64), Heat::Cold) > 0.99, "at {:?}", s.end);
        assert_eq!(s.quality.unwrap().coverage_bp, snapshots[0].quality.unwrap().coverage_bp);
        assert_eq!(s.targets[0].ran, Some(Duration::ZERO));
        // As of the last round it was idle all the time.
        let idle = s.end.since(Nanos(0));
        let is_true = |r: &RegionView| r.age <= idle && r.age + ms(1300) >= idle;
        let truly = bytes_where(&s.targets[0], mib(16, 48), is_true) / MIB;
        assert_eq!(truly, 48, "{idle:?}: {:?}", s.targets[0].regions);
    }
}

/// A child that shares memory ends while its parent rests.
#[test]
fn memory_that_was_shared_is_known_again_while_its_target_rests() {
    let shared = mib(32, 16);
    let (ops, t, mut monitor, _) =
        that_pauses_with(12.0, |m, t| m.set_unknown(t, shared, Some(Unknown::Shared)).unwrap());
    let unknown = |s: &Snapshot| {
        s.targets[0].regions.iter().map(|r| r.unknown_bytes(Unknown::Shared)).sum::<u64>() / MIB
    };
    let before = run_until(&mut monitor, &ops, 14.0).pop().unwrap();
    ops.machine().set_unknown(t, shared, None).unwrap();
    let after = run_until(&mut monitor, &ops, 60.0).pop().unwrap();
    let (before, after) = (unknown(&before), unknown(&after));
    assert!(before >= 14 && after == 0, "{before} MiB, then {after} MiB");
}

/// Most programs share the pages of their libraries. After a clear, a target at rest is read twice.
#[test]
fn shared_memory_of_a_target_at_rest_is_seldom_cleared() {
    let shared = mib(32, 16);
    let (ops, _, mut monitor, log) =
        that_pauses_with(12.0, |m, t| m.set_unknown(t, shared, Some(Unknown::Shared)).unwrap());
    run_until(&mut monitor, &ops, 20.0);
    log.take();
    run_until(&mut monitor, &ops, 80.0);
    let events = log.take();
    let clears = events.iter().filter(|e| e.clears).count();
    let reads = events.iter().filter(|e| !e.clears && !e.ranges.is_empty()).count();
    assert!((1..=2).contains(&clears) && reads <= 21, "{clears} clears, {reads} reads");
}

/// Two rounds each second instead of four.
#[test]
fn a_target_at_rest_has_long_rounds() {
    let (ops, t) = machine(1, |m, t| m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap());
    let times = Rc::new(RefCell::new(BTreeSet::new()));
    let asked = Rc::clone(&times);
    let mut tapped = Tapped::new(&ops);
    tapped.tells_activity = true;
    tapped.ran = Some(Box::new(move |now| {
        asked.borrow_mut().insert(now);
        Duration::ZERO
    }));
    let mut monitor = monitor(tapped, Attrs::default(), &[t]);
    run_until(&mut monitor, &ops, 20.0);
    times.borrow_mut().clear();
    let snapshots = run_until(&mut monitor, &ops, 40.0).len();
    let rounds = times.borrow().len();
    assert!((36..=55).contains(&rounds), "{rounds} rounds");
    assert!((18..=24).contains(&snapshots), "{snapshots} snapshots");
}

/// 64 MiB that pause, beside so much locked memory.
fn that_pauses_beside_locked(
    locked: u64,
    until: f64,
) -> (Ops, TargetId, Exposure<Tapped>, tapped::Log) {
    that_pauses_with(until, |m, t| {
        m.map(t, mib(100, locked), MappingSpec::anonymous().unknown(Unknown::Mlocked)).unwrap();
    })
}

/// The target hides much memory, but touches none of it.
#[test]
fn a_target_with_locked_memory_rests_too() {
    for locked in [4, 16, 64] {
        let (ops, _, mut monitor, log) = that_pauses_beside_locked(locked, 20.0);
        let snapshots = run_until(&mut monitor, &ops, 34.0);
        let number = snapshots.len();
        assert!((12..=30).contains(&number), "one each second: {number} snapshots, {locked} MiB");
        let readings = readings(&log);
        assert!((2..=8).contains(&readings), "{readings} readings, {locked} MiB");
    }
}

/// Locked memory may be touched without a change of the target's clock, so the monitor cannot wait.
#[test]
fn a_target_with_locked_memory_is_not_calm_while_its_clock_is_not_believed() {
    let (ops, t, mut monitor, _) = that_pauses_beside_locked(16, 16.0);
    ops.machine().touch(t, mib(32, 16), poisson(100.0)).unwrap();
    run_until(&mut monitor, &ops, 22.0);
    ops.machine().rest(t, mib(32, 16)).unwrap();
    run_until(&mut monitor, &ops, 36.0);
    let snapshots = run_until(&mut monitor, &ops, 40.0).len();
    assert!(snapshots > 10, "{snapshots} snapshots");
}

#[test]
fn what_is_reactivated_with_its_target_is_hot_soon() {
    let (ops, t, mut monitor, _) = that_pauses(100.0);
    ops.machine().touch(t, mib(32, 16), poisson(100.0)).unwrap();
    let snapshots = run_until(&mut monitor, &ops, 102.0);
    let hot = |s: &&Arc<Snapshot>| called(s, mib(32, 16), Heat::Hot) > 0.9;
    let first = snapshots.iter().find(hot).expect("it is hot");
    // A round at rest, and the early reads.
    assert!(first.end <= seconds(100.75), "at {:?}", first.end);
    let rate = mean_hz(&snapshots.last().unwrap().targets[0], mib(32, 16));
    assert!((70.0..140.0).contains(&rate), "{rate} Hz");
    assert!(called(snapshots.last().unwrap(), mib(0, 16), Heat::Cold) > 0.99);
}

/// For example by a process that shares its address space.
#[test]
fn what_is_touched_while_its_clock_stands_still_is_found_and_the_clock_no_longer_believed() {
    let (ops, t, mut monitor, log) = that_pauses(16.0);
    // Only while the target rests does a touch show that its clock is wrong. A rest has no readings.
    let rests = |at: &f64| {
        run_until(&mut monitor, &ops, *at);
        readings(&log) == 0
    };
    let begin = (0..20).map(|n| 16.75 + 0.75 * f64::from(n)).find(rests).expect("it rests");
    ops.machine().touch(t, mib(32, 16), poisson(100.0)).unwrap();
    let snapshots = run_until(&mut monitor, &ops, begin + 6.0);
    assert!(called(snapshots.last().unwrap(), mib(32, 16), Heat::Hot) > 0.9);
    ops.machine().rest(t, mib(32, 16)).unwrap();
    log.take();
    run_until(&mut monitor, &ops, begin + 14.0);
    let readings = readings(&log);
    assert!(readings >= 24, "{readings} readings");
}

/// No page exists yet, so there is nothing to clear and nothing to wait for.
#[test]
fn the_first_snapshot_of_what_has_no_memory_lasts() {
    let (ops, t) = machine(1, |_, _| {});
    let (snapshots, _) = watched(1.0, Attrs::default(), &ops, t, |_| {});
    assert!(snapshots.len() >= 3);
    assert!(snapshots.iter().all(|s| s.start < s.end), "{:?}", snapshots[0]);
}
