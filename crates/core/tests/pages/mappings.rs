use super::*;
use isotherm_core::{Thresholds, Unknown};

#[test]
fn mappings_come_grow_and_go() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, pages(0, 700), MappingSpec::anonymous()).unwrap();
        m.map(t, pages(700, 100), MappingSpec::anonymous()).unwrap();
        m.map(t, pages(900, 10), MappingSpec::anonymous()).unwrap();
        m.touch(t, pages(690, 20), every_ms(10)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    let covered =
        |s: &Snapshot| isotherm_core::join_touching(s.targets[0].regions.iter().map(|r| r.range));
    let s = run_until(&mut monitor, &ops, 2.0).pop().unwrap();
    assert_eq!(covered(&s), [pages(0, 800), pages(900, 10)]);
    let hot: Vec<_> = s.targets[0].regions.iter().filter(|r| r.accesses_bp > 0).collect();
    assert_eq!((hot.len(), hot[0].range), (1, pages(690, 20)), "over the end of a mapping");
    {
        let mut m = ops.machine();
        m.unmap(target, pages(100, 50)).unwrap();
        m.grow(target, pages(900, 1).start, pages(880, 1000)).unwrap();
        m.map(target, mib(64, 8), MappingSpec::anonymous().on_touch()).unwrap();
        m.touch(target, mib(66, 1), every_ms(10)).unwrap();
    }
    let snapshots = run_until(&mut monitor, &ops, 6.0);
    let s = snapshots.last().unwrap();
    let now = [pages(0, 100), pages(150, 650), pages(880, 1000), mib(64, 8)];
    assert_eq!(covered(s), now);
    let age = |at| region_at(&s.targets[0], pages(at, 1)).age;
    assert_eq!(age(0), s.end.since(Nanos(0)), "what is still mapped is as old as before");
    assert!(age(1500) < Duration::from_secs(4), "{:?}", age(1500));
    let bytes = s.bytes(&Thresholds::default());
    assert_eq!((bytes.absent, bytes.hot), (7 * MIB, MIB + 20 * PAGE_SIZE));
}

#[test]
fn hidden_memory_is_unknown_and_has_no_age() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous()).unwrap();
        m.map(t, mib(16, 16), MappingSpec::anonymous().unknown(Unknown::Dma)).unwrap();
        m.touch(t, mib(0, 32), every_ms(10)).unwrap();
        m.rest(t, mib(8, 8)).unwrap();
        m.set_unknown(t, pages(100, 50), Some(Unknown::Mlocked)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    let set = |range, why| ops.machine().set_unknown(target, range, why).unwrap();
    let s = run_until(&mut monitor, &ops, 3.0).pop().unwrap();
    let of = |s: &Snapshot, why| -> u64 {
        s.targets[0].regions.iter().map(|r| r.unknown_bytes(why)).sum()
    };
    assert_eq!((of(&s, Unknown::Mlocked), of(&s, Unknown::Dma)), (50 * PAGE_SIZE, 16 * MIB));
    assert_eq!(s.bytes(&Thresholds::default()).hot, 8 * MIB - 50 * PAGE_SIZE);
    // Untouched memory that is shared for a while is not known to have been cold then.
    set(mib(12, 4), Some(Unknown::Shared));
    let s = run_until(&mut monitor, &ops, 5.0).pop().unwrap();
    assert_eq!(of(&s, Unknown::Shared), 4 * MIB);
    set(mib(12, 4), None);
    let s = run_until(&mut monitor, &ops, 8.0).pop().unwrap();
    let age = |at| region_at(&s.targets[0], mib(at, 1)).age;
    assert_eq!(age(9), s.end.since(Nanos(0)));
    assert!(age(13) <= Duration::from_secs(3), "{:?}", age(13));
}

#[test]
fn nothing_is_believed_of_an_old_address_space() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 16), every_ms(10)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 3.0);
    ops.machine().exec(target).unwrap();
    ops.machine().map(target, mib(0, 16), MappingSpec::anonymous()).unwrap();
    let s = run_until(&mut monitor, &ops, 6.0).pop().unwrap();
    let only = &s.targets[0].regions;
    assert_eq!((only.len(), only[0].accesses_bp), (1, 0));
    assert!(only[0].age <= Duration::from_secs(3), "{:?}", only[0].age);
}

/// Each area has a region. With more than eight times as many areas as regions, the smallest are left out, and the
/// snapshot reports that.
#[test]
fn gaps_between_regions_are_reported() {
    for (areas, left_out) in [(24, 0), (30, 1 + 2 + 3 + 4 + 5 + 6)] {
        let (snapshots, ..) =
            watched(2.0, Attrs { min_regions: 3, max_regions: 3, ..attrs() }, |m, t| {
                for i in 0..areas {
                    m.map(t, pages(i * 100, i + 1), MappingSpec::anonymous()).unwrap();
                }
            });
        let view = &snapshots.last().unwrap().targets[0];
        assert_eq!((view.regions.len(), view.left_out), (24, left_out * PAGE_SIZE));
    }
}

/// Found by a review: memory that two such reads had not shown was absent, and came back as young.
#[test]
fn a_read_that_ends_early_is_no_sign_of_absence() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 4), every_ms(10)).unwrap();
    });
    let mut tapped = Tapped::new(&ops);
    let is_short = |now| (seconds(3.0)..seconds(3.1)).contains(&now);
    tapped.ends_early = Some(Box::new(is_short));
    let mut monitor = watch(tapped, attrs(), &[target], 1).unwrap();
    let s = run(&mut *monitor, &ops, seconds(6.0)).unwrap().pop().unwrap();
    let bytes = s.bytes(&Thresholds::default());
    assert_eq!((bytes.absent, bytes.hot), (0, 4 * MIB));
    assert_eq!(region_at(&s.targets[0], mib(8, 1)).age, s.end.since(Nanos(0)));
}
