use super::*;
use isotherm_core::{BLOCK_SIZE, Pressure, Restraint};
use std::collections::BTreeMap;

/// Watches under a pressure that depends on the time, in seconds.
fn pressed(pressure: impl Fn(f64) -> Pressure + 'static) -> (Vec<Arc<Snapshot>>, Vec<Event>) {
    let (ops, target) = machine(1, a_quarter_hot);
    watched(25.0, Attrs::default(), &ops, target, |tapped| {
        tapped.pressure = Some(Box::new(move |now: Nanos| pressure(now.0 as f64 / 1e9)));
    })
}

fn after(events: &[Event], s: f64) -> impl Iterator<Item = &Event> {
    events.iter().filter(move |e| e.clears && e.at > seconds(s))
}

/// Times between two clears of a block, from `s` on.
fn gaps(events: &[Event], s: f64) -> impl Iterator<Item = Duration> {
    let mut last: BTreeMap<u64, Nanos> = BTreeMap::new();
    let blocks = |r: &AddrRange| r.start / BLOCK_SIZE..=(r.end - 1) / BLOCK_SIZE;
    let cleared =
        after(events, s).flat_map(move |e| e.ranges.iter().flat_map(blocks).map(|b| (b, e.at)));
    cleared.filter_map(move |(block, at)| Some(at.since(last.insert(block, at)?)))
}

/// Reclaim scans pages from 5 s on.
#[test]
fn under_reclaim_no_page_is_cleared_twice_within_5_s() {
    let scanned = |s: f64| ((s - 5.0).max(0.0) * 1000.0) as u64;
    let (snapshots, events) =
        pressed(move |s| Pressure { scanned: scanned(s), ..Pressure::default() });
    for gap in gaps(&events, 6.0) {
        assert!(gap >= Duration::from_secs(5), "a page again after {gap:?}");
    }
    let cleared = after(&events, 6.0).count();
    assert!(cleared > 0, "it goes on, seldom");
    let of = |s: &Arc<Snapshot>| s.quality.unwrap().restraint;
    assert!(snapshots.iter().filter(|s| s.end < seconds(5.0)).all(|s| of(s) == Restraint::None));
    let reported: Vec<_> = snapshots.iter().filter(|s| s.end > seconds(6.5)).map(of).collect();
    assert!(reported.iter().all(|r| *r == Restraint::ShortRuns), "{reported:?}");
}

/// Reclaim clears bits as it scans, so touches before that cannot be observed.
#[test]
fn reclaim_widens_the_intervals() {
    let error = |came_back: f64| {
        let (snapshots, _) = pressed(move |s| Pressure {
            scanned: (s * 40_000.0) as u64,
            private_refaults: (s * came_back) as u64,
            ..Pressure::default()
        });
        let errors = snapshots.iter().filter_map(|s| s.quality?.error_log2.map(f64::from));
        errors.sum::<f64>() / snapshots.len() as f64
    };
    let (private, of_files) = (error(100.0), error(0.0));
    assert!(private > of_files + 0.2, "{private:.2} and {of_files:.2}");
}

/// From 5 s on reclaimed pages are refaulted, and tasks wait for them half of the time.
#[test]
fn in_trouble_nothing_is_cleared() {
    let (snapshots, events) = pressed(|s| {
        let passed = (s - 5.0).max(0.0);
        let n = (passed * 1000.0) as u64;
        let stalled = Duration::from_secs_f64(passed / 2.0);
        Pressure { scanned: n, refaults: n, stalled, ..Pressure::default() }
    });
    assert_eq!(after(&events, 6.0).count(), 0);
    let last = snapshots.last().unwrap();
    assert_eq!(last.quality.unwrap().restraint, Restraint::ReadOnly);
    assert!(last.end > seconds(24.0), "snapshots go on");
}

#[test]
fn clears_resume_after_pressure() {
    let (snapshots, events) = pressed(|s| {
        let n = ((s.min(8.0) - 5.0).max(0.0) * 1000.0) as u64;
        Pressure { scanned: n, ..Pressure::default() }
    });
    let is_long = |e: &Event| e.ranges.iter().any(|r| r.len() > BLOCK_SIZE);
    assert!(!after(&events, 6.5).take_while(|e| e.at < seconds(14.0)).any(is_long));
    assert!(after(&events, 15.0).any(is_long));
    assert_eq!(snapshots.last().unwrap().quality.unwrap().restraint, Restraint::None);
}
