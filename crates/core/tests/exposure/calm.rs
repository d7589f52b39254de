//! While nothing changes, most reads are of samples.

use super::field::{Field, TARGET, Touch};
use super::*;

/// 64 MiB are hot, and 960 MiB idle: 4 MiB of them, `late` s after the first 30 s, become hot. Returns the
/// snapshots before and after.
fn reactivated_after_a_calm(late: f64) -> (Vec<Arc<Snapshot>>, Vec<Arc<Snapshot>>) {
    let areas = [mib(0, 64), mib(64, 500), mib(564, 4), mib(568, 456)];
    let field = Field::new(&areas, 1);
    let mut monitor = Exposure::new(field.clone(), Attrs::default(), &[TARGET], 1).unwrap();
    field.touch(0, Touch::Random(100.0));
    field.run(&mut monitor, seconds(30.0));
    let calm = field.run(&mut monitor, seconds(30.0 + late));
    field.touch(2, Touch::Random(100.0));
    (calm, field.run(&mut monitor, seconds(33.0 + late)))
}

#[test]
fn calm_memory_is_read_once_a_second_and_sampled_between() {
    let (calm, _) = reactivated_after_a_calm(20.0);
    let pages: u64 = calm.iter().map(|s| s.cost.pages).sum();
    let of_all = pages as f64 / 20.0 / (1024 * 256) as f64;
    assert!((1.0..1.7).contains(&of_all), "{of_all:.2} of all pages are read each second");
}

#[test]
fn a_small_area_that_is_reactivated_in_calm_memory_is_found_at_once() {
    for tenths in 0..12 {
        let late = f64::from(tenths) / 10.0;
        let (_, then) = reactivated_after_a_calm(late);
        let hot = then.iter().find(|s| called(s, mib(564, 4), Heat::Hot) > 0.9);
        let after = hot.map(|s| s.end.since(seconds(30.0 + late)));
        assert!(after.is_some_and(|after| after <= ms(600)), "{late} s later: {after:?}");
    }
}

/// No sample need contain it, but each second all is read.
#[test]
fn a_page_that_is_reactivated_in_calm_memory_is_found_soon() {
    for tenths in 0..6 {
        let (ops, target) = machine(1, |m, t| {
            m.map(t, mib(0, 256), MappingSpec::anonymous()).unwrap();
            m.touch(t, mib(0, 32), poisson(100.0)).unwrap();
        });
        let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
        let late = 20.0 + f64::from(tenths) / 5.0;
        run_until(&mut monitor, &ops, late);
        let page = pages(100 * 256 + 77, 1);
        ops.machine().touch(target, page, poisson(100.0)).unwrap();
        let then = run_until(&mut monitor, &ops, late + 3.0);
        let is_warm = |s: &&Arc<Snapshot>| {
            let touched = |r: &&RegionView| r.touched_bp > 0 && r.range.len() <= 64 << 10;
            s.targets[0].regions.iter().filter(touched).any(|r| r.range.contains(page.start))
        };
        let after = then.iter().find(is_warm).map(|s| s.end.since(seconds(late)));
        assert!(after.is_some_and(|after| after <= ms(1500)), "{late} s: {after:?}");
    }
}

/// Memory that appears is noticed like memory that is reactivated.
#[test]
fn memory_that_comes_during_a_calm_is_found_at_once() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.map(t, mib(64, 192), MappingSpec::anonymous().on_touch()).unwrap();
        m.touch(t, mib(0, 16), poisson(100.0)).unwrap();
    });
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    run_until(&mut monitor, &ops, 20.3);
    ops.machine().touch(target, mib(100, 8), poisson(100.0)).unwrap();
    let then = run_until(&mut monitor, &ops, 23.0);
    let hot = then.iter().find(|s| called(s, mib(100, 8), Heat::Hot) > 0.9);
    let after = hot.map(|s| s.end.since(seconds(20.3)));
    assert!(after.is_some_and(|after| after <= ms(600)), "{after:?}");
}

/// All pages of a run are young after a few ms. The snapshot follows 100 ms after the clear, without a further read.
#[test]
fn a_run_that_is_young_is_not_read_early_again() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(16, 16), poisson(2000.0)).unwrap();
    });
    let (snapshots, events) = watched(20.0, Attrs::default(), &ops, target, |_| {});
    let settled = |e: &&Event| e.clears && (seconds(5.0)..seconds(19.5)).contains(&e.at);
    let mut reads = Vec::new();
    for clear in events.iter().filter(settled) {
        let is_early = |e: &&Event| {
            let within = |r: &AddrRange| clear.ranges.iter().any(|c| c.intersect(r) == Some(*r));
            !e.clears && !e.ranges.is_empty() && e.ranges.iter().all(within) && e.at > clear.at
        };
        reads.push(events.iter().filter(is_early).filter(|e| e.at < clear.at + ms(200)).count());
    }
    let mean = reads.iter().sum::<usize>() as f64 / reads.len() as f64;
    assert!(reads.len() > 10 && mean <= 3.5, "{reads:?}");
    let late: Vec<f64> = snapshots
        .iter()
        .filter(|s| s.end > seconds(5.0))
        .map(|s| {
            assert!(called(s, mib(16, 16), Heat::Hot) > 0.99, "at {:?}", s.end);
            mean_hz(&s.targets[0], mib(16, 16))
        })
        .collect();
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((1000.0..4000.0).contains(&mean), "{mean} Hz");
}

/// A part of memory that was evenly hot for long becomes `part_hz` instead of 100 Hz. How long until its rate is
/// within a factor of two, by size of the part in MiB.
#[test]
#[ignore = "prints figures"]
fn all_parts_that_change() {
    for (size, part) in [(32, 8), (64, 16), (256, 16), (256, 64), (256, 128), (1024, 128)] {
        for hz in [5.0, 20.0, 500.0] {
            let mut all = Vec::new();
            for seed in 1..=5 {
                let at = size / 8 * 3;
                let areas =
                    [mib(0, at), mib(at, part), mib(at + part, size - at - part), mib(size, 512)];
                let field = Field::new(&areas, seed);
                let mut monitor =
                    Exposure::new(field.clone(), Attrs::default(), &[TARGET], seed).unwrap();
                (0..3).for_each(|a| field.touch(a, Touch::Random(100.0)));
                let begin = 40.0 + seed as f64 / 5.0;
                field.run(&mut monitor, seconds(begin));
                field.touch(1, Touch::Random(hz));
                let then = field.run(&mut monitor, seconds(begin + 40.0));
                let is_right = |s: &&Arc<Snapshot>| {
                    let view = &s.targets[0];
                    let near = |r: &RegionView| (f64::from(r.rate.hz) / hz).log2().abs() < 1.0;
                    bytes_where(view, areas[1], near) * 10 >= areas[1].len() * 9
                };
                let after = then.iter().find(is_right).map(|s| s.end.since(seconds(begin)));
                all.push(after.map_or(40.0, |after| after.as_secs_f64()));
            }
            println!("{part} of {size} MiB to {hz} Hz: {all:.1?} s");
        }
    }
}
