use super::*;

const KIB64: u64 = 64 << 10;

#[test]
fn heap_mmap_and_stack_are_covered_and_no_gap_is() {
    let heap = AddrRange::new(0x55_5555_5000, 0x55_5555_5000 + 24 * MIB);
    let stack = AddrRange::new(0x7fff_ff00_0000, 0x7fff_ff80_0000);
    let areas = [heap, mib(0, 64), mib(66, 2), stack];
    let (ops, target) = machine(1, |m, t| {
        m.map(t, heap, MappingSpec::heap()).unwrap();
        m.map(t, mib(0, 32), MappingSpec::anonymous()).unwrap();
        m.map(t, mib(32, 32), MappingSpec::anonymous().on_touch()).unwrap();
        m.map(t, mib(66, 2), MappingSpec::anonymous()).unwrap();
        m.map(t, stack, MappingSpec::stack()).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    for s in run_until(&mut monitor, &ops, 4.0) {
        let view = &s.targets[0];
        assert_eq!(isotherm_core::join_touching(view.regions.iter().map(|r| r.range)), areas);
        assert_eq!((view.mappings.len(), view.left_out), (5, 0));
    }
}

#[test]
fn new_mappings_are_monitored_after_an_update_interval() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 3.05);
    ops.machine().map(target, mib(100, 32), MappingSpec::anonymous()).unwrap();
    ops.machine().touch(target, mib(100, 32), poisson(100.0)).unwrap();
    let cover = |m: &RegionSampler<Ops>| covered(m.targets()[0].regions());
    run_until(&mut monitor, &ops, 3.9);
    assert_eq!(cover(&monitor), [mib(0, 64)]);
    run_until(&mut monitor, &ops, 4.05);
    assert_eq!(cover(&monitor), [mib(0, 64), mib(100, 32)]);
    let s = run_until(&mut monitor, &ops, 4.8).pop().unwrap();
    assert!(mean_hz(&s.targets[0], mib(100, 32)) > 70.0);
}

#[test]
fn unmapped_memory_leaves_and_other_memory_keeps_its_rate() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 5.5);
    ops.machine().unmap(target, mib(24, 16)).unwrap();
    run_until(&mut monitor, &ops, 6.0);
    let s = run_until(&mut monitor, &ops, 7.6).pop().unwrap();
    assert_eq!(
        isotherm_core::join_touching(s.targets[0].regions.iter().map(|r| r.range)),
        [mib(0, 24), mib(40, 24)]
    );
    assert_eq!(s.targets[0].mapped(), 48 * MIB);
    let old = bytes_where(&s.targets[0], mib(40, 24), |r| r.age > Duration::from_secs(6));
    assert!(old > 20 * MIB, "{} MiB", old / MIB);
}

#[test]
fn a_grown_mapping_is_covered_in_both_directions() {
    let (ops, target) = machine(1, |m, t| m.map(t, mib(10, 4), MappingSpec::anonymous()).unwrap());
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 1.5);
    ops.machine().grow(target, mib(10, 4).start, mib(6, 12)).unwrap();
    run_until(&mut monitor, &ops, 2.5);
    assert_eq!(covered(monitor.targets()[0].regions()), [mib(6, 12)]);
}

/// The area number `i` of 50, with gaps between them: 1 to 50 times 64 KiB.
fn area(i: u64) -> AddrRange {
    AddrRange::new(mib(i * 8, 1).start, mib(i * 8, 1).start + (i + 1) * KIB64)
}

/// A machine with these areas, the last 20 of which are hot, and attributes with at most 20 regions.
fn more_areas_than_regions() -> (Ops, TargetId, Attrs) {
    let (ops, target) = machine(1, |m, t| {
        (0..50).for_each(|i| m.map(t, area(i), MappingSpec::anonymous()).unwrap());
        // Regions whose clears have a cost clear seldom, which leaves room in the batches.
        (30..50).for_each(|i| m.touch(t, area(i), poisson(100.0)).unwrap());
    });
    (ops, target, Attrs { min_regions: 10, max_regions: 20, ..Attrs::default() })
}

#[test]
fn more_areas_than_regions_leave_out_the_smallest() {
    let (ops, target, attrs) = more_areas_than_regions();
    let mut monitor = RegionSampler::new(ops.clone(), attrs, &[target], 1).unwrap();
    for s in run_until(&mut monitor, &ops, 3.0) {
        let view = &s.targets[0];
        assert_eq!(
            view.regions.iter().map(|r| r.range).collect::<Vec<_>>(),
            (30..50).map(area).collect::<Vec<_>>()
        );
        assert_eq!(view.left_out, (1..=30).sum::<u64>() * KIB64);
    }
    ops.machine().unmap(target, mib(30 * 8, 1000)).unwrap();
    run_until(&mut monitor, &ops, 4.1);
    let s = run_until(&mut monitor, &ops, 4.5).pop().unwrap();
    assert_eq!(s.targets[0].left_out, (1..=10).sum::<u64>() * KIB64);
}

/// The monitor sweeps memory when it is mapped, also memory that no region covers afterwards.
#[test]
fn areas_without_a_region_are_swept_once() {
    let (ops, target, attrs) = more_areas_than_regions();
    let mut swept = Vec::new();
    let spoil = |ask: &Ask, _: &mut Seen| swept.extend(ask.clear.then_some(ask.range));
    let spoiled = Spoiled { ops: ops.clone(), spoil };
    let mut monitor = RegionSampler::new(spoiled, attrs, &[target], 1).unwrap();
    run(&mut monitor, &ops, seconds(10.0)).unwrap();
    drop(monitor);
    let times = |i| swept.iter().filter(|range| **range == area(i)).count();
    assert_eq!((0..30).map(times).collect::<Vec<_>>(), [1; 30]);
}

/// New mappings while the number of regions is near its maximum must not blur known regions.
#[test]
fn new_mappings_cost_no_borders() {
    let hot = |i: u64| mib(2 + i * 8, 1);
    let (ops, target) = machine(2, |m, t| {
        m.map(t, mib(0, 80), MappingSpec::anonymous()).unwrap();
        (0..10).for_each(|i| m.touch(t, hot(i), poisson(100.0)).unwrap());
    });
    let attrs = Attrs { min_regions: 10, max_regions: 45, ..Attrs::default() };
    let mut monitor = RegionSampler::new(ops.clone(), attrs, &[target], 1).unwrap();
    let mut found = Vec::new();
    run_until(&mut monitor, &ops, 8.0);
    for round in 0..4 {
        for i in 0..20 {
            ops.machine().map(target, mib(1000 + i * 2, 1), MappingSpec::anonymous()).unwrap();
        }
        for s in run_until(&mut monitor, &ops, 10.0 + f64::from(round) * 4.0) {
            let hz = (0..10).map(|i| mean_hz(&s.targets[0], hot(i))).sum::<f64>() / 10.0;
            found.push(hz.round());
        }
        ops.machine().unmap(target, mib(1000, 100)).unwrap();
        run_until(&mut monitor, &ops, 12.0 + f64::from(round) * 4.0);
    }
    assert!(found.iter().all(|&hz| hz > 40.0), "{found:?}");
}

/// If small areas need most of the regions, the big one has fewer, but keeps its borders.
#[test]
fn many_areas_leave_borders_to_the_big_one() {
    let (ops, target) = machine(3, |m, t| {
        a_quarter_hot(m, t);
        (0..70).for_each(|i| m.map(t, mib(100 + i * 2, 1), MappingSpec::anonymous()).unwrap());
    });
    let attrs = Attrs { min_regions: 100, max_regions: 100, ..Attrs::default() };
    let mut monitor = RegionSampler::new(ops.clone(), attrs, &[target], 1).unwrap();
    let mut found = Vec::new();
    for s in run_until(&mut monitor, &ops, 9.0).iter().filter(|s| s.start > seconds(5.0)) {
        found.push(mean_hz(&s.targets[0], mib(16, 16)).round());
    }
    assert!(found.iter().all(|&hz| hz > 70.0), "{found:?}");
}
