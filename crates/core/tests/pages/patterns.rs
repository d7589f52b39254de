use super::*;
use isotherm_core::Thresholds;

/// A page that is touched every 40 ms is found touched in every second sample of 20 ms.
#[test]
fn shares_of_samples_are_exact() {
    let (snapshots, ..) = watched(4.0, attrs(), |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous()).unwrap();
        m.touch(t, pages(1000, 300), every_ms(40)).unwrap();
        m.touch(t, pages(2000, 7), every_ms(20)).unwrap();
    });
    assert_eq!(snapshots.len(), 10);
    for s in &snapshots[1..] {
        let found: Vec<_> =
            s.targets[0].regions.iter().map(|r| (r.range, r.accesses_bp, r.resident_bp)).collect();
        let whole = |range, share| (range, share, 10_000);
        let expected = [
            whole(pages(0, 1000), 0),
            whole(pages(1000, 300), 5_000),
            whole(pages(1300, 700), 0),
            whole(pages(2000, 7), 10_000),
            whole(pages(2007, 4096 - 2007), 0),
        ];
        assert_eq!(found, expected, "snapshot {}", s.seq);
        assert_eq!(s.quality.unwrap().coverage_bp, 10_000);
        assert!(s.cost.clears > 0 && s.cost.cpu > Duration::ZERO && s.cost.lost > Duration::ZERO);
    }
}

/// Memory that was never touched is as old as the monitor. Memory that is no longer touched has its idle time
/// as its age, to one sample.
#[test]
fn ages_of_untouched_memory_are_exact() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous()).unwrap();
        m.touch(t, pages(500, 20), every_ms(10)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 6.0);
    ops.machine().rest(target, pages(500, 20)).unwrap();
    let s = run_until(&mut monitor, &ops, 8.0).pop().unwrap();
    let age = |range| region_at(&s.targets[0], range).age;
    assert_eq!(age(pages(0, 1)), s.end.since(Nanos(0)));
    let rests = s.end.since(seconds(6.0));
    let short = rests.checked_sub(age(pages(500, 1))).unwrap();
    assert!(short <= Duration::from_millis(20), "{short:?} less than it is");
    assert_eq!(region_at(&s.targets[0], pages(500, 1)).range, pages(500, 20));
}

/// The ms of 50 days exceed 32 bits.
#[test]
fn ages_stay_exact_for_months() {
    const DAY: f64 = 86_400.0;
    let hour = Duration::from_secs(3600);
    let (ops, target) = machine(1, |m, t| m.map(t, mib(0, 1), MappingSpec::anonymous()).unwrap());
    let attrs = Attrs { sample: hour, aggr: 2 * hour, ..attrs() };
    let mut monitor = watch(ops.clone(), attrs, &[target], 1).unwrap();
    run_until(&mut monitor, &ops, 55.0 * DAY);
    ops.machine().touch(target, pages(100, 8), every_ms(60_000)).unwrap();
    run_until(&mut monitor, &ops, 55.1 * DAY);
    ops.machine().rest(target, pages(100, 8)).unwrap();
    let s = run_until(&mut monitor, &ops, 60.0 * DAY).pop().unwrap();
    let region = region_at(&s.targets[0], pages(100, 8));
    assert_eq!(region.range, pages(100, 8));
    let days = region.age.as_secs_f64() / DAY;
    assert!((4.8..4.95).contains(&days), "{days} days");
}

#[test]
fn hot_warm_and_cold_pages_are_found_to_the_page() {
    let (snapshots, ops, target) = watched(9.0, attrs(), |m, t| {
        m.map(t, mib(0, 256), MappingSpec::anonymous()).unwrap();
        m.touch(t, pages(10_003, 5_001), poisson(100.0)).unwrap();
        m.touch(t, pages(30_007, 8_003), poisson(2.0)).unwrap();
    });
    for s in snapshots.iter().filter(|s| s.start >= seconds(6.0)) {
        let scores = scores(s, &ops, target);
        for (what, score) in [("hot", scores.hot), ("cold", scores.cold)] {
            let (p, r) = (score.precision().unwrap(), score.recall().unwrap());
            assert!(p > 0.999 && r > 0.999, "{what} in snapshot {}: {p:.4} {r:.4}", s.seq);
        }
        assert!(scores.warm.recall().unwrap() > 0.99, "{:?}", scores.warm);
        assert!(scores.rate_error.unwrap() < 0.5, "{:?}", scores.rate_error);
        assert!(s.nr_regions() <= 1000);
    }
}

#[test]
fn one_hot_page_is_found_among_many() {
    let (snapshots, ..) = watched(2.0, attrs(), |m, t| {
        m.map(t, mib(0, 512), MappingSpec::anonymous()).unwrap();
        m.touch(t, pages(77_777, 1), poisson(100.0)).unwrap();
    });
    let hot = region_at(&snapshots.last().unwrap().targets[0], pages(77_777, 1));
    assert_eq!(hot.range, pages(77_777, 1));
    assert!((40.0..250.0).contains(&hot.rate.hz) && hot.rate.low > 20.0, "{:?}", hot.rate);
}

/// With `windows` every 16th page is separate; without, regions report the share of their touched pages.
#[test]
fn every_sixteenth_page() {
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        let of = Box::new(poisson(40.0));
        m.touch(t, mib(0, 64), TouchPattern::Sparse { nth: 16, of }).unwrap();
    };
    let (snapshots, ..) = watched(3.0, Attrs { windows: true, ..attrs() }, lay);
    let s = snapshots.last().unwrap();
    let hot = s.bytes(&Thresholds::default()).hot / PAGE_SIZE;
    assert!(hot.abs_diff(1024) <= 10, "{hot} pages");
    assert!(s.nr_regions() >= 2040, "{} regions", s.nr_regions());
    let (snapshots, ..) = watched(3.0, Attrs { max_regions: 200, ..attrs() }, lay);
    let s = snapshots.last().unwrap();
    assert!(s.nr_regions() <= 200);
    let hot = s.bytes(&Thresholds::default()).hot / PAGE_SIZE;
    assert!(hot.abs_diff(1024) <= 50, "{hot} pages");
}

#[test]
fn rates_are_right_over_two_decades() {
    let rates = [1.0, 5.0, 20.0, 80.0];
    let (snapshots, ..) = watched(4.0, attrs(), |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        for (i, hz) in rates.into_iter().enumerate() {
            m.touch(t, mib(i as u64 * 16, 8), poisson(hz)).unwrap();
        }
    });
    for (i, hz) in rates.into_iter().enumerate() {
        let inner = mib(i as u64 * 16, 8);
        let s = snapshots.last().unwrap();
        let parts = s.targets[0].regions.iter();
        let parts = parts.filter_map(|r| Some((r, r.range.intersect(&inner)?.len() as f64)));
        let each = parts.map(|(r, n)| {
            f64::from(r.rate.hz) * f64::from(r.touched_bp) / 1e4 * n / inner.len() as f64
        });
        let found: f64 = each.sum();
        assert!((found / hz - 1.0).abs() < 0.1, "{found:.2} Hz instead of {hz}");
    }
}

/// A huge page has one bit: all of it counts as touched, and as one look.
#[test]
fn a_huge_page_is_one_look() {
    let (snapshots, ..) = watched(2.0, attrs(), |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous().huge()).unwrap();
        m.touch(t, pages(512, 1), every_ms(40)).unwrap();
    });
    let hot = region_at(&snapshots.last().unwrap().targets[0], mib(2, 2));
    assert_eq!((hot.range, hot.accesses_bp), (mib(2, 2), 5_000));
    let width = hot.rate.high / hot.rate.low;
    assert!(width > 2.0, "20 looks tell no more: {:?}", hot.rate);
}

/// Exposure is measured, so rates are right even if the caller is late.
#[test]
fn a_gap_is_no_sample() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 16), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 16), poisson(5.0)).unwrap();
    });
    let mut monitor = monitor(&ops, &[target]);
    run_until(&mut monitor, &ops, 2.1);
    ops.machine().advance(Duration::from_secs(60));
    for s in run_until(&mut monitor, &ops, 64.0) {
        let hz = region_at(&s.targets[0], mib(0, 1)).rate.hz;
        assert!((3.5..7.0).contains(&hz), "{hz} Hz in snapshot {}", s.seq);
    }
}
