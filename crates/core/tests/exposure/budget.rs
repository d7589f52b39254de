use super::*;
use std::collections::BTreeSet;

/// What was spent of one CPU in the `length` that ends at each event from `from` on, at most.
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

/// When all of so many blocks of 2 MiB had been cleared once.
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

/// Targets of so many MiB each, the first part of which is hot.
fn hot(size: u64, targets: usize, share: f64, hz: f64) -> (Ops, Vec<TargetId>) {
    let mut m = Machine::new(1);
    let targets: Vec<TargetId> = (0..targets).map(|_| m.spawn()).collect();
    for &t in &targets {
        m.map(t, mib(0, size), Memory::anonymous()).unwrap();
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

/// Own cost and what targets lose, over any 5 s after the first sweep, is 1.1 of the budget at most.
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

#[test]
fn the_budget_is_kept_at_1_gib() {
    is_kept(1024, 1, 0.25, 50.0, 10_000, 30.0);
}

#[test]
fn the_budget_is_kept_at_8_gib() {
    is_kept(8192, 1, 0.05, 20.0, 10_000, 40.0);
}

/// In any 5 s there are no more shootdowns than are allowed for 5 s, and those kept from before.
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
