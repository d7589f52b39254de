use super::*;
use isotherm_core::{Pressure, Restraint};
use std::collections::BTreeMap;

/// Watched under a pressure that depends on the time, in seconds.
fn pressed(pressure: impl Fn(f64) -> Pressure + 'static) -> (Vec<Arc<Snapshot>>, Vec<Event>) {
    let (ops, target) = machine(1, a_quarter_hot);
    watched(25.0, Attrs::default(), &ops, target, |tapped| {
        tapped.pressure = Some(Box::new(move |now: Nanos| pressure(now.0 as f64 / 1e9)));
    })
}

fn after(events: &[Event], s: f64) -> impl Iterator<Item = &Event> {
    events.iter().filter(move |e| e.clears && e.at > seconds(s))
}

/// Reclaim looks at pages from 5 s on.
#[test]
fn under_reclaim_no_page_is_cleared_twice_within_5_s() {
    let scanned = |s: f64| ((s - 5.0).max(0.0) * 1000.0) as u64;
    let (snapshots, events) =
        pressed(move |s| Pressure { scanned: scanned(s), ..Pressure::default() });
    let mut last: BTreeMap<u64, Nanos> = BTreeMap::new();
    let mut cleared = 0;
    for e in after(&events, 6.0) {
        for block in e.ranges.iter().flat_map(|r| r.start >> 21..=(r.end - 1) >> 21) {
            if let Some(before) = last.insert(block, e.at) {
                let passed = e.at.since(before);
                assert!(passed >= Duration::from_secs(5), "{block:#x} again after {passed:?}");
            }
            cleared += 1;
        }
    }
    assert!(cleared > 0, "it goes on, seldom");
    let of = |s: &Arc<Snapshot>| s.quality.unwrap().restraint;
    assert!(snapshots.iter().filter(|s| s.end < seconds(5.0)).all(|s| of(s) == Restraint::None));
    let told: Vec<_> = snapshots.iter().filter(|s| s.end > seconds(6.5)).map(of).collect();
    assert!(told.iter().all(|r| *r == Restraint::ShortRuns), "{told:?}");
}

/// From 5 s on what is reclaimed is wanted again, and tasks wait for it for half of the time.
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
fn it_goes_on_as_before_once_pressure_is_over() {
    let (snapshots, events) = pressed(|s| {
        let n = ((s.min(8.0) - 5.0).max(0.0) * 1000.0) as u64;
        Pressure { scanned: n, ..Pressure::default() }
    });
    let at = |from: f64, to: f64| after(&events, from).filter(|e| e.at < seconds(to)).count();
    assert!(at(15.0, 20.0) > 2 * at(6.5, 11.5), "{} {}", at(15.0, 20.0), at(6.5, 11.5));
    assert_eq!(snapshots.last().unwrap().quality.unwrap().restraint, Restraint::None);
}
