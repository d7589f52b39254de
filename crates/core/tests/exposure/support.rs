//! The basis of the rates of a snapshot.

use super::field::{Field, MEASURED, Prices, TARGET, Touch};
use super::*;
use isotherm_core::{Pressure, RateSupport, SupportBytes};

/// The percentages of the visible memory that are measured, extended and old.
fn percent(s: &Snapshot) -> [f64; 3] {
    let SupportBytes { measured, extended, old } = s.support_bytes();
    [measured, extended, old].map(|n| n as f64 * 100.0 / (measured + extended + old) as f64)
}

/// The shares of all regions add up to a whole, and their bytes to the visible memory.
fn assert_whole(s: &Snapshot) {
    for r in &s.targets[0].regions {
        let RateSupport { measured_bp, extended_bp } = r.support.unwrap();
        assert!(measured_bp + extended_bp <= 10_000, "{r:?}");
    }
    let b = s.bytes(&Thresholds::default());
    assert_eq!(s.support_bytes().total(), b.hot + b.warm + b.cold);
}

#[test]
fn memory_that_is_looked_at_in_time_is_measured() {
    let (ops, target) = machine(1, a_quarter_hot);
    let (snapshots, _) = watched(15.0, Attrs::default(), &ops, target, |_| {});
    for s in snapshots.iter().filter(|s| s.start > seconds(5.0)) {
        assert_whole(s);
        let [measured, ..] = percent(s);
        // As rounds become calm, the turn of a region may be late once.
        assert!(measured > 95.0, "{measured:.1} % in snapshot {}", s.seq);
    }
}

/// 1 GiB of 4 GiB is no longer touched. A sample shows this long before all of it was cleared again.
#[test]
fn rates_of_cooled_memory_are_extended() {
    let hot = mib(1024, 1024);
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 4096), MappingSpec::anonymous()).unwrap();
        m.touch(t, hot, poisson(50.0)).unwrap();
    });
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    let before = run_until(&mut monitor, &ops, 20.0);
    let last = before.last().unwrap();
    assert!(percent(last)[0] > 99.0, "{:.1?} %", percent(last));
    ops.machine().rest(target, hot).unwrap();
    let later = run_until(&mut monitor, &ops, 26.0);
    later.iter().for_each(|s| assert_whole(s));
    let most = later.iter().map(|s| percent(s)[1]).fold(0.0, f64::max);
    assert!((5.0..=26.0).contains(&most), "{most:.1} % of all are extended, at most");
    for s in &later {
        let is_extended = |r: &RegionView| r.support.unwrap().extended_bp > 0;
        let elsewhere = [mib(0, 1016), mib(2056, 2040)];
        let wrong = elsewhere.map(|range| bytes_where(&s.targets[0], range, is_extended));
        let since = s.end.since(seconds(20.0));
        let idle = |r: &RegionView| is_extended(r) && r.rate.hz == 0.0 && r.age > since;
        assert!(!s.targets[0].regions.iter().any(idle), "idle since before it was, by presumption");
        assert_eq!(wrong, [0, 0], "what did not change is measured, in snapshot {}", s.seq);
    }
}

/// From 5 s on no clear is permitted. Hot memory looks the same during that time, and cold memory is observed
/// to be cold.
#[test]
fn hot_memory_that_is_not_cleared_becomes_old() {
    let (ops, target) = machine(1, a_quarter_hot);
    let (snapshots, _) = watched(45.0, Attrs::default(), &ops, target, |tapped| {
        tapped.pressure = Some(Box::new(|now: Nanos| {
            let passed = (now.0 as f64 / 1e9 - 5.0).max(0.0);
            let n = (passed * 1000.0) as u64;
            let stalled = Duration::from_secs_f64(passed / 2.0);
            Pressure { scanned: n, refaults: n, stalled, ..Pressure::default() }
        }));
    });
    snapshots.iter().for_each(|s| assert_whole(s));
    let last = snapshots.last().unwrap();
    let [measured, _, old] = percent(last);
    assert!((20.0..=30.0).contains(&old), "{old:.1} % are old, and a quarter is hot");
    assert!(measured > 70.0, "{measured:.1} %");
}

/// A target that used most of a CPU sleeps from then on, except for one pass through some of its memory. What it does not
/// touch was not touched, although it runs less than usual.
#[test]
fn memory_of_a_target_that_falls_asleep_is_not_old() {
    let areas = [mib(0, 24), mib(24, 96), mib(120, 136)];
    let field = Field::priced(&areas, 1, Prices { touch: 100e-9, ..MEASURED });
    let mut monitor = Exposure::new(field.clone(), Attrs::default(), &[TARGET], 1).unwrap();
    field.touch(0, Touch::Random(1000.0));
    let busy = field.run(&mut monitor, seconds(16.0)).pop().unwrap();
    assert!(busy.targets[0].ran.is_some_and(|ran| ran * 2 > busy.end.since(busy.start)));
    field.touch(0, Touch::Idle);
    field.touch(1, Touch::Pass { from: field.now(), length: Duration::from_secs(8) });
    let asleep = field.run(&mut monitor, seconds(24.0));
    for s in asleep.iter().filter(|s| s.start > seconds(17.0)) {
        let [.., old] = percent(s);
        assert!(old < 5.0, "{old:.1} % are old at {:?}", s.end);
    }
}
