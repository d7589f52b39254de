use super::*;
use isotherm_core::Monitor as _;
use std::collections::BTreeSet;

/// The maximum spent of one CPU over the `length` that ends at each event from `from` on.
fn most(events: &[Event], from: Nanos, length: f64, of: impl Fn(&Event) -> f64) -> f64 {
    let (mut first, mut sum, mut most) = (0, 0.0, 0.0f64);
    let events: Vec<&Event> = events.iter().filter(|e| e.at > from).collect();
    for e in &events {
        sum += of(e);
        while e.at.since(events[first].at).as_secs_f64() >= length {
            sum -= of(events[first]);
            first += 1;
        }
        most = most.max(sum / length);
    }
    most
}

fn cpu(e: &Event) -> f64 {
    (e.cost.cpu + e.cost.lost).as_secs_f64()
}

/// The time by which all of `blocks` blocks of 2 MiB had been cleared once.
fn swept(events: &[Event], blocks: u64) -> Nanos {
    let mut seen = BTreeSet::new();
    for e in events.iter().filter(|e| e.clears) {
        for r in &e.armed {
            seen.extend((r.start >> 21..=(r.end - 1) >> 21).map(|b| (e.target, b)));
        }
        if seen.len() as u64 == blocks {
            return e.at;
        }
    }
    panic!("{} of {blocks} blocks were ever cleared", seen.len());
}

/// Targets of `size` MiB each, of which the first part is hot.
fn hot(size: u64, targets: usize, share: f64, hz: f64) -> (Ops, Vec<TargetId>) {
    let mut m = Machine::new(1);
    let targets: Vec<TargetId> = (0..targets).map(|_| m.spawn()).collect();
    for &t in &targets {
        m.map(t, mib(0, size), MappingSpec::anonymous()).unwrap();
        let hot = (size as f64 * share) as u64;
        if hot > 0 {
            m.touch(t, mib(0, hot), poisson(hz)).unwrap();
        }
    }
    (Ops::new(m), targets)
}

fn spent(size: u64, targets: usize, share: f64, hz: f64, ppm: u32, s: f64) -> (f64, f64) {
    let (ops, targets) = hot(size, targets, share, hz);
    let tapped = Tapped::new(&ops);
    let log = tapped.log.clone();
    let attrs = Attrs { budget_ppm: ppm, ..Attrs::default() };
    let mut monitor = monitor(tapped, attrs, &targets);
    run_until(&mut monitor, &ops, s);
    let events = log.take();
    let from = swept(&events, size / 2 * targets.len() as u64);
    assert!(from < seconds(s - 10.0), "the first sweep took {from:?} of {s} s");
    let share = most(&events, from, 5.0, cpu) / (f64::from(ppm) / 1e6);
    (share, from.0 as f64 / 1e9)
}

/// Own cost and loss of the targets, over any 5 s after the first sweep, is at most 1.1 times the budget.
fn is_kept(size: u64, targets: usize, share: f64, hz: f64, ppm: u32, s: f64) {
    let (most, from) = spent(size, targets, share, hz, ppm, s);
    println!("{targets} x {size} MiB, {share} at {hz} Hz, {ppm} ppm: {most:.2} after {from:.1} s");
    assert!(most <= 1.1, "{most:.2} of the budget: {targets} x {size} MiB, {share} hot");
}

#[test]
fn the_budget_is_kept_whatever_is_hot() {
    for (share, hz) in [(0.0, 0.0), (0.05, 100.0), (0.25, 20.0), (1.0, 100.0), (1.0, 1000.0)] {
        is_kept(64, 1, share, hz, 10_000, 20.0);
    }
}

#[test]
fn a_bigger_budget_is_kept() {
    is_kept(128, 1, 0.5, 50.0, 50_000, 15.0);
}

#[test]
fn a_tenth_of_the_budget_is_kept() {
    is_kept(128, 1, 0.5, 50.0, 1_000, 40.0);
}

#[test]
fn the_budget_is_kept_with_many_targets() {
    is_kept(32, 5, 0.25, 100.0, 10_000, 20.0);
    is_kept(16, 20, 0.25, 100.0, 10_000, 20.0);
}

/// Targets of 4 MiB each, of which half is hot. A look at one takes 0.1 ms more.
fn dear(n: usize) -> (Ops, Vec<TargetId>, Tapped) {
    let (ops, targets) = hot(4, n, 0.5, 100.0);
    let mut tapped = Tapped::new(&ops);
    tapped.dear = ms(1) / 10;
    (ops, targets, tapped)
}

/// Looking at all of them takes a quarter of a second, and the budget has 10 ms per second. So rounds become
/// longer, and each still looks at all targets.
#[test]
fn the_budget_is_kept_with_hundreds_of_targets() {
    const N: usize = 400;
    const S: f64 = 400.0;
    let (ops, targets, tapped) = dear(N);
    let log = tapped.log.clone();
    let mut monitor = monitor(tapped, Attrs::default(), &targets);
    let snapshots = run_until(&mut monitor, &ops, S);
    let events = log.take();
    let from = swept(&events, 2 * N as u64);
    assert!(from < seconds(5.0), "the first sweep took {from:?}");
    // The cost is known after the first rounds, of which there are four in 15 s. Then all targets are cleared in every
    // third round, about each 47 s.
    let first: f64 = events.iter().filter(|e| e.at < seconds(20.0)).map(cpu).sum();
    let most = most(&events, seconds(20.0), 300.0, cpu) / 0.01;
    println!("{first:.2} s in the first 20 s, then {most:.2} of the budget");
    assert!(most <= 1.1 && first < 2.0, "{most:.2} of the budget, after {first:.2} s");
    let last = snapshots.last().unwrap();
    assert!(last.end > seconds(S - 60.0), "the last snapshot is of {:?}", last.end);
    assert_eq!(last.quality.unwrap().coverage_bp, 10_000);
    assert_eq!(last.targets.len(), N);
    let hot = |view: &&TargetView| bytes_where(view, mib(0, 2), |r| r.rate.hz >= 50.0) == 2 * MIB;
    let found = last.targets.iter().filter(hot).count();
    assert!(found > N * 9 / 10, "of {found} it is known what is hot");
}

/// The next round looks at a new target. When most targets have ended, rounds are short again.
#[test]
fn rounds_are_as_long_as_those_who_are_there_take() {
    let (ops, targets, tapped) = dear(400);
    let mut monitor = monitor(tapped, Attrs::default(), &targets[..300]);
    let _ = run_until(&mut monitor, &ops, 100.0);
    monitor.set_targets(&targets);
    let many = run_until(&mut monitor, &ops, 200.0);
    let last = many.last().unwrap();
    let is_seen = |view: &&TargetView| view.bytes(&Thresholds::default()).unknown < 4 * MIB;
    let seen = last.targets.iter().filter(is_seen).count();
    assert!(seen == 400 && many.len() < 10, "{seen} of 400 were seen in {} snapshots", many.len());
    monitor.set_targets(&targets[..4]);
    let few = run_until(&mut monitor, &ops, 300.0);
    assert!(few[0].end < seconds(203.0), "the round under way is not waited for: {:?}", few[0].end);
    let lately = few.iter().filter(|s| s.end > seconds(260.0)).count();
    assert!(lately >= 30, "{lately} snapshots in 40 s");
}

#[test]
fn the_budget_is_kept_at_1_gib() {
    is_kept(1024, 1, 0.25, 50.0, 10_000, 30.0);
}

#[test]
fn the_budget_is_kept_at_8_gib() {
    is_kept(8192, 1, 0.05, 20.0, 10_000, 40.0);
}

/// Within this budget 16 GiB cannot be read in 24 rounds. The budget is kept, and the snapshot reports the
/// missing memory.
#[test]
fn where_the_budget_is_too_small_coverage_falls() {
    let (ops, targets) = hot(16_384, 1, 0.01, 20.0);
    let tapped = Tapped::new(&ops);
    let log = tapped.log.clone();
    let attrs = Attrs { budget_ppm: 100, ..Attrs::default() };
    let mut monitor = monitor(tapped, attrs, &targets);
    let snapshots = run_until(&mut monitor, &ops, 240.0);
    let events = log.take();
    let from = swept(&events, 8192);
    let most = most(&events, from, 60.0, cpu) / 1e-4;
    assert!(most <= 1.1, "{most:.2} of the budget");
    let coverage = |s: &Arc<Snapshot>| s.quality.unwrap().coverage_bp;
    let late = snapshots.iter().filter(|s| s.end > seconds(60.0)).map(coverage);
    let late: Vec<u32> = late.collect();
    assert!(late.iter().all(|bp| (500..9_500).contains(bp)), "{late:?}");
}

/// The first sweep may take a tenth of a CPU in addition to the budget. The income of half a second is available
/// at once.
#[test]
fn the_burst_at_the_start_is_bounded() {
    for (size, share) in [(256, 1.0), (2048, 0.1)] {
        let (ops, targets) = hot(size, 1, share, 100.0);
        let tapped = Tapped::new(&ops);
        let log = tapped.log.clone();
        let mut monitor = monitor(tapped, Attrs::default(), &targets);
        run_until(&mut monitor, &ops, 15.0);
        let events = log.take();
        let end = swept(&events, size / 2);
        let spent: f64 = events.iter().filter(|e| e.at <= end).map(cpu).sum();
        let allowed = 0.11 * 1.1 * (end.0 as f64 / 1e9 + 0.5);
        assert!(spent <= allowed, "{spent:.3} s of {allowed:.3}, {size} MiB");
    }
}

/// Any 5 s have at most the permitted shootdowns of 5 s, plus the accumulated ones.
#[test]
fn the_bound_on_shootdowns_is_kept() {
    for (targets, max_clears) in [(1, 5), (1, 50), (5, 20)] {
        let (ops, targets) = hot(64, targets, 0.5, 100.0);
        let tapped = Tapped::new(&ops);
        let log = tapped.log.clone();
        let attrs = Attrs { max_clears, ..Attrs::default() };
        let mut monitor = monitor(tapped, attrs, &targets);
        let snapshots = run_until(&mut monitor, &ops, 20.0);
        let found = most(&log.take(), Nanos(0), 5.0, |e| e.cost.clears as f64);
        let bound = f64::from(max_clears) * 1.4;
        assert!(found <= bound, "{found:.1} a second, {} targets, {max_clears}", targets.len());
        let last = snapshots.last().unwrap();
        for i in 0..targets.len() {
            let hz = mean_hz(&last.targets[i], mib(0, 32));
            assert!((50.0..200.0).contains(&hz), "{hz} Hz in target {i}, {max_clears}");
        }
    }
}
