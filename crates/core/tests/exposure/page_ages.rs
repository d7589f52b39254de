//! Idle ages by page, against the touches of the simulated machine.

use isotherm_core::{Act, Action, Budget, MappingKind, Monitor, PageAges, PageMask, Unknown, Work};

use super::*;

/// The rows: pages idle for `t` seconds or more, and such pages touched per second.
fn curve(rows: &[(f64, Arc<PageAges>)], t: f64) -> [f64; 2] {
    let begun = rows[0].1.begun;
    let late = rows.iter().filter(|(_, r)| r.since.since(begun).as_secs_f64() >= t);
    let [mut idle, mut back, mut time, mut n] = [0.0; 4];
    for (end, row) in late {
        idle += row.idle.at_least(t);
        back += row.returned.at_least(t);
        time += end - row.since.since(Nanos(0)).as_secs_f64();
        n += 1.0;
    }
    [idle / n, back / time]
}

/// The truth of the same, by every 16th page of `range`, between `from` and `to` seconds.
fn truth(
    ops: &Ops,
    target: TargetId,
    range: AddrRange,
    ages: &[f64],
    (from, to): (u64, u64),
) -> Vec<[f64; 2]> {
    let machine = ops.machine();
    let truth = machine.truth(target).unwrap();
    let mut out = vec![[0.0; 2]; ages.len()];
    let step = 16;
    for page in (0..range.len() / PAGE_SIZE).step_by(step) {
        let addr = range.start + page * PAGE_SIZE;
        for second in from..to {
            let at = Nanos(second * 1_000_000_000);
            let age =
                truth.last_touch(addr, at).map_or(f64::MAX, |last| at.since(last).as_secs_f64());
            for (t, out) in ages.iter().zip(&mut out) {
                out[0] += f64::from(u8::from(age >= *t)) * step as f64 / (to - from) as f64;
            }
        }
        let mut at = Nanos(to * 1_000_000_000);
        while let Some(last) = truth.last_touch(addr, at).filter(|l| l.0 > from * 1_000_000_000) {
            let before = truth.last_touch(addr, Nanos(last.0 - 1));
            let gap = before.map_or(f64::MAX, |b| last.since(b).as_secs_f64());
            for (t, out) in ages.iter().zip(&mut out) {
                out[1] += f64::from(u8::from(gap >= *t)) * step as f64 / (to - from) as f64;
            }
            at = Nanos(last.0 - 1);
        }
    }
    out
}

fn rows(snapshots: &[Arc<Snapshot>]) -> Vec<(f64, Arc<PageAges>)> {
    let row = |s: &Arc<Snapshot>| Some((s.end.0 as f64 / 1e9, s.targets[0].ages.clone()?));
    snapshots.iter().filter_map(row).collect()
}

const AGES: [f64; 7] = [2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 45.0];

/// The curve compared with the truth: the largest error of idle pages as a share of all, and the median factor of
/// returned pages where at least 5 a second return.
fn compare(name: &str, lay: impl FnOnce(&mut Machine, TargetId), range: AddrRange) -> (f64, f64) {
    let (ops, target) = machine(1, lay);
    let (snapshots, _) = watched(120.0, Attrs::default(), &ops, target, |_| {});
    let rows = rows(&snapshots);
    let truth = truth(&ops, target, range, &AGES, (40, 120));
    let all = (range.len() / PAGE_SIZE) as f64;
    let mut worst: f64 = 0.0;
    let mut factors = Vec::new();
    for (t, truth) in AGES.iter().zip(truth) {
        let seen = curve(&rows, *t);
        println!(
            "{name:<16} {t:>4} s: idle {:>7.1} MiB, truth {:>7.1}; returned {:>7.1}/s, truth {:>7.1}",
            seen[0] / 256.0,
            truth[0] / 256.0,
            seen[1],
            truth[1]
        );
        if *t >= 5.0 {
            worst = worst.max((seen[0] - truth[0]).abs() / all);
            // Ages near the length of a turn are wrong by a part of it.
            if *t >= 5.0 && truth[1] >= 5.0 {
                factors.push((seen[1].max(0.1) / truth[1]).ln().abs().exp());
            }
        }
    }
    factors.sort_by(f64::total_cmp);
    let median = factors.get(factors.len() / 2).copied().unwrap_or(1.0);
    println!("{name:<16} worst error {worst:.3} of all memory, median factor {median:.2}");
    (worst, median)
}

/// Rates of a zipf law over pages, all together `total` Hz; strewn over the memory, or in order.
fn zipf(pages: u64, exponent: f64, total: f64, strewn: bool) -> Arc<[f64]> {
    let weight = |rank: u64| 1.0 / (rank as f64 + 1.0).powf(exponent);
    let sum: f64 = (0..pages).map(weight).sum();
    // Multiplication by an odd number permutes the pages of a power of two.
    let rank = |page: u64| if strewn { page.wrapping_mul(0x9E37_79B1) % pages } else { page };
    (0..pages).map(|page| weight(rank(page)) / sum * total).collect()
}

fn by_page(hz: Arc<[f64]>) -> TouchPattern {
    TouchPattern::Blocks { block: PAGE_SIZE, hz }
}

/// Pages of all rates side by side: no region shows their ages.
#[test]
fn ages_of_strewn_pages_are_right() {
    let (worst, factor) = zipf_strewn(32);
    assert!(worst < 0.03 && factor < 1.1, "{worst} {factor}");
}

/// Memory at a slow rate, memory that is read in turn in 16 s, and idle memory.
#[test]
fn ages_of_slow_memory_are_right() {
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, 64), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 16), poisson(0.1)).unwrap();
        m.touch(t, mib(16, 16), TouchPattern::Sweep { every: Duration::from_secs(16) }).unwrap();
        m.touch(t, mib(32, 16), poisson(20.0)).unwrap();
    };
    let (worst, factor) = compare("slow", lay, mib(0, 64));
    assert!(worst < 0.03 && factor < 1.1, "{worst} {factor}");
}

/// 16 MiB are paged out at 25 s. For ten seconds it cannot be known that they are in swap.
#[test]
fn memory_in_swap_keeps_its_ages_if_this_is_known_later() {
    let (ops, target) = machine(1, |m, t| m.map(t, mib(0, 32), MappingSpec::anonymous()).unwrap());
    let mut tapped = Tapped::new(&ops);
    let all = PageMask::span(0, 512);
    tapped.swapped = Some(Box::new(move |now| (now > seconds(35.0)).then_some(all)));
    let mut monitor = monitor(tapped, Attrs::default(), &[target]);
    let mut snapshots = run_until(&mut monitor, &ops, 25.0);
    let budget = Budget { bytes: u64::MAX, time: Duration::MAX };
    let (action, filters, recheck) = (&Action::PageOut, &[][..], Duration::ZERO);
    let range = mib(0, 16);
    let work = Work { action, target, range, budget, filters, recheck, cause: None };
    ops.clone().apply(&[work], &mut Vec::new()).unwrap();
    snapshots.extend(run_until(&mut monitor, &ops, 60.0));
    let last = rows(&snapshots).pop().unwrap().1;
    let [resident, swapped] = [last.idle.total(), last.swapped.total()];
    assert_eq!((resident, swapped, last.swapped.at_least(40.0)), (4096, 4096, 4096.0));
}

/// 16 MiB of a mapped file are evicted at 25 s, and read again at 60 s. Another 16 MiB are freed.
#[test]
fn evicted_pages_of_files_keep_their_ages() {
    let (ops, target) = machine(1, |m, t| {
        let file = MappingSpec { kind: MappingKind::File, ..MappingSpec::anonymous() };
        m.map(t, mib(0, 16), file).unwrap();
        m.map(t, mib(64, 32), MappingSpec::anonymous()).unwrap();
    });
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    let mut snapshots = run_until(&mut monitor, &ops, 25.0);
    let budget = Budget { bytes: u64::MAX, time: Duration::MAX };
    let (action, filters, recheck) = (&Action::PageOut, &[][..], Duration::ZERO);
    let work = |range| Work { action, target, range, budget, filters, recheck, cause: None };
    ops.clone().apply(&[mib(0, 16), mib(64, 16)].map(work), &mut Vec::new()).unwrap();
    snapshots.extend(run_until(&mut monitor, &ops, 60.0));
    ops.machine().touch(target, mib(0, 16), poisson(1.0)).unwrap();
    snapshots.extend(run_until(&mut monitor, &ops, 90.0));
    let file = 16 * 256;
    let rows = rows(&snapshots);
    let pages = |at: f64| {
        let (_, row) = rows.iter().find(|(end, _)| *end > at).unwrap();
        (row.idle.total(), row.swapped.total(), row.swapped.at_least(20.0))
    };
    assert_eq!(pages(19.0), (3 * file, 0, 0.0));
    assert_eq!(pages(45.0), (file, file, file as f64), "the other 16 MiB are freed");
    assert_eq!(pages(75.0), (2 * file, 0, 0.0));
    let back: f64 = rows.iter().map(|(_, row)| row.returned.at_least(50.0)).sum();
    assert!(back > 0.9 * file as f64, "{back}");
}

/// 31 small processes do not take the counted pages of a large one.
#[test]
fn counted_pages_are_shared_by_memory() {
    let mut machine = Machine::new(1);
    let sizes = std::iter::once(128).chain([1; 31]);
    let spawn = |size| {
        let target = machine.spawn();
        machine.map(target, mib(0, size), MappingSpec::anonymous()).unwrap();
        target
    };
    let targets: Vec<TargetId> = sizes.map(spawn).collect();
    let ops = Ops::new(machine);
    let mut monitor = monitor(Tapped::new(&ops), Attrs::default(), &targets);
    let snapshots = run_until(&mut monitor, &ops, 20.0);
    let ages = snapshots.iter().rev().find_map(|s| s.targets[0].ages.clone());
    assert_eq!(ages.unwrap().sampling, 1);
}

/// The monitor restarts at 60 s. Memory that was evicted at 25 s is read again 5 s later, before the first row.
#[test]
fn returns_count_at_once_after_a_restart() {
    let (ops, target) = machine(1, |m, t| {
        let file = MappingSpec { kind: MappingKind::File, ..MappingSpec::anonymous() };
        m.map(t, mib(0, 16), file).unwrap();
        m.map(t, mib(64, 16), MappingSpec::anonymous()).unwrap();
    });
    let mut before = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    run_until(&mut before, &ops, 25.0);
    let budget = Budget { bytes: u64::MAX, time: Duration::MAX };
    let (action, filters, recheck) = (&Action::PageOut, &[][..], Duration::ZERO);
    let range = mib(0, 16);
    let work = Work { action, target, range, budget, filters, recheck, cause: None };
    ops.clone().apply(&[work], &mut Vec::new()).unwrap();
    run_until(&mut before, &ops, 60.0);
    let mut next = monitor(Tapped::new(&ops), Attrs::default(), &[target]);
    next.resume_ages(before.kept_ages());
    let mut snapshots = run_until(&mut next, &ops, 65.0);
    ops.machine().touch(target, range, poisson(1.0)).unwrap();
    snapshots.extend(run_until(&mut next, &ops, 90.0));
    let (_, first) = &rows(&snapshots)[0];
    assert!(first.returned.at_least(30.0) > 0.9 * 16.0 * 256.0, "{:?}", first.returned);
}

/// A process of 8 MiB, half of which is at work, beside one of 1.5 GiB that ends. An hour later, all of its pages are
/// counted.
#[test]
fn the_sample_grows_again_if_there_is_less_memory() {
    let mut machine = Machine::new(1);
    let targets = [8, 1536].map(|size| {
        let target = machine.spawn();
        machine.map(target, mib(0, size), MappingSpec::anonymous()).unwrap();
        target
    });
    machine.touch(targets[0], mib(0, 4), poisson(0.5)).unwrap();
    let ops = Ops::new(machine);
    let attrs = Attrs { interval: Duration::from_secs(8), ..Attrs::default() };
    let mut monitor = monitor(Tapped::new(&ops), attrs, &targets);
    let last = |snapshots: &[Arc<Snapshot>]| rows(snapshots).pop().unwrap().1;
    let before = last(&run_until(&mut monitor, &ops, 30.0));
    assert_eq!(before.sampling, 8);
    monitor.set_targets(&targets[..1]);
    let after = last(&run_until(&mut monitor, &ops, 3900.0));
    assert_eq!(after.sampling, 1);
    assert!(after.begun > seconds(3600.0), "{:?}", after.begun);
    let all = 8 * 256;
    assert_eq!((after.idle.total(), after.unknown), (all, 0));
    let idle = after.idle.at_least(60.0) / all as f64;
    assert!((0.48..0.52).contains(&idle), "{idle}");
}

/// In addition to 32 MiB that can be observed, 16 MiB are locked and 8 MiB of a device. Of the locked memory no
/// age is known, though `page_idle` observes it; the target needs it all the same.
#[test]
fn locked_memory_has_no_age_and_counts_as_unknown() {
    let (ops, target) = machine(1, |m, t| {
        m.map(t, mib(0, 32), MappingSpec::anonymous()).unwrap();
        m.map(t, mib(64, 16), MappingSpec::anonymous().unknown(Unknown::Mlocked)).unwrap();
        m.map(t, mib(128, 8), MappingSpec::anonymous().unknown(Unknown::Special)).unwrap();
    });
    let (snapshots, _) = watched(30.0, Attrs::default(), &ops, target, |_| {});
    let rows = rows(&snapshots);
    assert!(rows.len() >= 2, "{}", rows.len());
    for (end, row) in rows {
        assert_eq!((row.idle.total(), row.unknown), (32 * 256, 16 * 256), "at {end} s");
    }
}

#[test]
#[ignore = "prints a table; takes a minute"]
fn all_page_ages() {
    zipf_strewn(256);
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, 320), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 256), by_page(zipf(256 * 256, 1.0, 20_000.0, false))).unwrap();
    };
    compare("zipf-together", lay, mib(0, 320));
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, 320), MappingSpec::anonymous()).unwrap();
        for (at, hz) in [(0, 1.8), (64, 0.1), (128, 0.02)] {
            m.touch(t, mib(at, 64), poisson(hz)).unwrap();
        }
        m.touch(t, mib(192, 64), TouchPattern::Sweep { every: Duration::from_secs(16) }).unwrap();
    };
    compare("mix", lay, mib(0, 320));
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, 256), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 48), poisson(1.6)).unwrap();
        m.touch(t, mib(48, 128), TouchPattern::Sweep { every: Duration::from_secs(16) }).unwrap();
    };
    compare("scan", lay, mib(0, 256));
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, 320), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 32), poisson(1.2)).unwrap();
        let every = Duration::from_secs(4);
        m.touch(t, mib(32, 256), TouchPattern::Moving { window: 32 * MIB, every, hz: 4.0 })
            .unwrap();
    };
    compare("move", lay, mib(0, 320));
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, 256), MappingSpec::anonymous()).unwrap();
        m.touch(t, mib(0, 64), poisson(10.0)).unwrap();
        m.touch(t, mib(64, 64), poisson(0.05)).unwrap();
    };
    compare("hot-slow-idle", lay, mib(0, 256));
}

fn zipf_strewn(size: u64) -> (f64, f64) {
    let lay = |m: &mut Machine, t| {
        m.map(t, mib(0, size), MappingSpec::anonymous()).unwrap();
        let total = 80.0 * size as f64;
        m.touch(t, mib(0, size), by_page(zipf(size * 256, 0.9, total, true))).unwrap();
    };
    compare(&format!("zipf-strewn {size}"), lay, mib(0, size))
}
