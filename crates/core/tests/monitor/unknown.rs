use super::*;
use isotherm_core::{Act, Action, Budget, RegionView, Thresholds, Unknown, Work};

fn heat_bytes(s: &Snapshot) -> isotherm_core::HeatBytes {
    s.bytes(&Thresholds::default())
}

/// 64 MiB, all hot. Accesses to the last 32 MiB cannot be observed.
#[test]
fn unknown_memory_is_neither_hot_nor_cold() {
    for why in [Unknown::Shared, Unknown::Dma] {
        let (ops, target) = machine(1, |m, t| {
            m.map(t, mib(0, 32), MappingSpec::anonymous()).unwrap();
            m.map(t, mib(32, 32), MappingSpec::anonymous().unknown(why)).unwrap();
            m.touch(t, mib(32, 32), poisson(100.0)).unwrap();
        });
        let mut monitor = monitor(&ops, &[target]);
        let s = run_until(&mut monitor, &ops, 7.0).pop().unwrap();
        let b = heat_bytes(&s);
        assert_eq!((b.hot, b.absent), (0, 0), "{}", why.name());
        let unknown: u64 = s.targets[0].regions.iter().map(|r| r.unknown_bytes(why)).sum();
        assert_eq!(unknown, b.unknown);
        assert!(unknown.abs_diff(32 * MIB) < MIB, "{}: {} MiB", why.name(), unknown / MIB);
        assert!(b.cold > 30 * MIB, "{} MiB", b.cold / MIB);
        assert_eq!(s.targets[0].mappings[1].unknown, Some(why));
    }
}

/// Memory that is shared for some time is not known to have been cold then, even if it was never touched.
#[test]
fn memory_is_not_cold_for_the_time_it_was_unknown() {
    let (ops, target) = machine(1, |m, t| m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap());
    let mut monitor = monitor(&ops, &[target]);
    let set = |why| ops.machine().set_unknown(target, mib(32, 32), why).unwrap();
    let cold = |s: &Snapshot, range| {
        bytes_where(&s.targets[0], range, |r| r.age > Duration::from_secs(3)) / MIB
    };
    // By then each page has been cleared, so none will look accessed.
    run_until(&mut monitor, &ops, 5.0);
    set(Some(Unknown::Shared));
    run_until(&mut monitor, &ops, 8.0);
    set(None);
    let s = run_until(&mut monitor, &ops, 10.0).pop().unwrap();
    assert_eq!((cold(&s, mib(0, 28)), cold(&s, mib(36, 28))), (28, 0));
}

#[test]
fn absent_memory_is_absent() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous().on_touch()).unwrap();
        m.touch(t, mib(16, 16), poisson(100.0)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    let s = run_until(&mut monitor, &ops, 6.0).pop().unwrap();
    let b = heat_bytes(&s);
    assert!(b.absent.abs_diff(48 * MIB) <= MIB && b.hot.abs_diff(16 * MIB) <= MIB, "{b:?}");
    let hz = mean_hz(&s.targets[0], mib(18, 12));
    assert!((80.0..120.0).contains(&hz), "{hz}");
}

#[test]
fn paged_out_memory_is_absent_until_its_next_touch() {
    let (mut ops, target) =
        machine(1, |m, t| m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap());
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 2.0);
    let budget = Budget { bytes: u64::MAX, time: Duration::from_secs(1) };
    let (action, range, filters) = (&Action::PageOut, mib(0, 32), &[]);
    let work =
        Work { action, target, range, budget, filters, recheck: Duration::ZERO, cause: None };
    let mut done = Vec::new();
    ops.apply(&[work], &mut done).unwrap();
    assert_eq!((done[0].tried, done[0].applied), (32 * MIB, 32 * MIB));
    let s = run_until(&mut monitor, &ops, 5.0).pop().unwrap();
    assert!(heat_bytes(&s).absent.abs_diff(32 * MIB) <= MIB, "{:?}", heat_bytes(&s));
    ops.machine().touch(target, mib(0, 32), poisson(20.0)).unwrap();
    let s = run_until(&mut monitor, &ops, 8.0).pop().unwrap();
    assert_eq!(heat_bytes(&s).absent, 0);
    assert!(heat_bytes(&s).hot.abs_diff(32 * MIB) <= 2 * MIB, "{:?}", heat_bytes(&s));
}

/// All looks at the hot half are dropped. It is unseen, and the cold half says nothing about it.
#[test]
fn dropped_looks_say_nothing() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(32, 32), poisson(100.0)).unwrap();
    });
    let drop_upper = |ask: &Ask, seen: &mut Seen| {
        if ask.range.start >= mib(32, 0).start {
            *seen = Seen::default();
        }
    };
    let spoiled = Spoiled { ops: ops.clone(), spoil: drop_upper };
    let mut monitor = RegionSampler::new(spoiled, Attrs::default(), &[target], 1).unwrap();
    let snapshots = run(&mut monitor, &ops, seconds(8.0)).unwrap();
    let unseen = |r: &RegionView| r.unknown_bp.0[Unknown::Unseen.index()] == 10_000;
    let view = &snapshots.last().unwrap().targets[0];
    let upper = bytes_where(view, mib(32, 32), unseen);
    assert!(upper >= 31 * MIB, "{} of 32 MiB are unseen", upper / MIB);
    assert_eq!(bytes_where(view, mib(0, 31), unseen), 0);
    let b = heat_bytes(snapshots.last().unwrap());
    assert!(b.hot == 0 && b.cold >= 31 * MIB, "{b:?}");
}

/// Occasionally dropped looks do not make hot memory colder.
#[test]
fn some_dropped_looks_change_no_rate() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 16), poisson(50.0)).unwrap();
    });
    let mut turn = 0;
    let spoil = |_: &Ask, seen: &mut Seen| {
        turn += 1;
        if turn % 3 == 0 {
            *seen = Seen::default();
        }
    };
    let mut monitor =
        RegionSampler::new(Spoiled { ops: ops.clone(), spoil }, Attrs::default(), &[target], 1)
            .unwrap();
    let s = run(&mut monitor, &ops, seconds(4.0)).unwrap().pop().unwrap();
    let hz = mean_hz(&s.targets[0], mib(0, 16));
    assert!((42.0..58.0).contains(&hz), "{hz:.1} Hz instead of 50");
}
