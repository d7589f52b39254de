use super::*;
use isotherm_core::Thresholds;

fn faster() -> Attrs {
    let ms = Duration::from_millis;
    Attrs { sample: ms(10), aggr: ms(100), ..Attrs::default() }
}

#[test]
fn changing_attributes_keeps_ages_and_rates() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[target]);
    let before = run_until(&mut monitor, &ops, 8.1).pop().unwrap();
    monitor.set_attrs(faster()).unwrap();
    let kept = monitor.targets()[0].regions();
    let hot = kept.iter().filter(|r| mib(18, 12).contains(r.range.start));
    hot.for_each(|r| assert!(r.accesses_bp > 6000, "{r:?}")); // 8650 but for chance
    let after = run_until(&mut monitor, &ops, 8.3).remove(0);
    // Ten samples from the step after the change on, and none before.
    assert_eq!((after.start, after.end), (seconds(8.1), seconds(8.2)));
    assert_eq!((after.seq, after.attrs), (before.seq + 1, faster()));
    assert_eq!(after.targets[0].ran, Some(faster().aggr));
    let aged = |s: &Snapshot, least: u64| {
        bytes_where(&s.targets[0], mib(36, 28), |r| r.age >= Duration::from_secs(least)) / MIB
    };
    assert!(aged(&before, 7) >= 26, "{} MiB", aged(&before, 7));
    assert!(aged(&after, 7) >= 26, "{} MiB", aged(&after, 7));
    let (hz_before, hz_after) = (
        before.targets[0].bytes(&Thresholds::default()).hot,
        after.targets[0].bytes(&Thresholds::default()).hot,
    );
    assert!(hz_before.abs_diff(hz_after) <= 2 * MIB, "{hz_before} {hz_after}");
}

#[test]
fn fewer_regions_are_kept_to_at_once() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 4.0);
    let mapped = covered(monitor.targets()[0].regions());
    let attrs = Attrs { min_regions: 3, max_regions: 10, ..Attrs::default() };
    monitor.set_attrs(attrs).unwrap();
    assert!(monitor.targets()[0].regions().len() <= 10);
    assert_eq!(covered(monitor.targets()[0].regions()), mapped);
    let snapshots = run_until(&mut monitor, &ops, 6.0);
    assert!(snapshots.iter().all(|s| s.nr_regions() <= 10));
    let many = Attrs { min_regions: 400, min_region_size: 4096, ..Attrs::default() };
    monitor.set_attrs(many).unwrap();
    let snapshots = run_until(&mut monitor, &ops, 8.0);
    assert!(snapshots.last().unwrap().nr_regions() >= 400);
}

/// With more areas than regions, whole areas are left out: no part of an area is dropped because another part
/// has another heat.
#[test]
fn fewer_regions_than_areas_leave_out_whole_areas() {
    let area = |i: u64| mib(8 * i, if i < 7 { 4 } else { 2 });
    let (ops, target) = machine(1, |m, t| {
        for i in 0..9 {
            m.map(t, area(i), MappingSpec::anonymous()).unwrap();
            m.touch(t, mib(8 * i, 1), poisson(100.0)).unwrap();
        }
    });
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 2.0);
    assert!(monitor.targets()[0].regions().len() > 9, "no area has regions of different heat");
    monitor.set_attrs(Attrs { min_regions: 6, max_regions: 7, ..Attrs::default() }).unwrap();
    let biggest: Vec<AddrRange> = (0..7).map(area).collect();
    assert_eq!(covered(monitor.targets()[0].regions()), biggest);
    for s in run_until(&mut monitor, &ops, 4.0) {
        let regions: Vec<AddrRange> = s.targets[0].regions.iter().map(|r| r.range).collect();
        assert_eq!((regions, s.targets[0].left_out), (biggest.clone(), 4 * MIB));
    }
}

#[test]
fn wrong_attributes_are_refused_and_the_old_ones_stay() {
    let (ops, target) = machine(1, a_quarter_hot);
    let wrong = [
        Attrs { sample: Duration::ZERO, ..Attrs::default() },
        Attrs { sample: Duration::from_millis(300), ..Attrs::default() },
        Attrs { min_regions: 2, ..Attrs::default() },
        Attrs { min_regions: 2000, ..Attrs::default() },
        Attrs { max_regions: 1_000_000, ..Attrs::default() },
        Attrs { min_region_size: 5000, ..Attrs::default() },
        Attrs { window: 4 << 20, ..Attrs::default() },
        Attrs { split_parts: 1, ..Attrs::default() },
    ];
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 2.0);
    for attrs in wrong {
        assert!(RegionSampler::new(ops.clone(), attrs, &[target], 1).is_err(), "{attrs:?}");
        assert!(monitor.set_attrs(attrs).is_err());
        assert_eq!(monitor.attrs(), Attrs::default());
    }
    // The current interval was not disturbed either.
    assert_eq!(run_until(&mut monitor, &ops, 2.4)[0].start, seconds(2.0));
}

/// Ages are elapsed time, also if one interval is no multiple of the other.
#[test]
fn ages_do_not_run_ahead_of_the_clock() {
    let (ops, target) = machine(1, a_quarter_hot);
    let ms = Duration::from_millis;
    let attrs = Attrs { sample: ms(30), aggr: ms(100), ..Attrs::default() };
    let mut monitor = RegionSampler::new(ops.clone(), attrs, &[target], 1).unwrap();
    for s in run_until(&mut monitor, &ops, 6.0) {
        assert_eq!(s.end.since(s.start), attrs.sample * attrs.samples());
        let oldest = s.targets[0].regions.iter().map(|r| r.age).max().unwrap();
        assert_eq!(oldest, s.end.since(Nanos(0)), "the cold part has never changed");
    }
}
