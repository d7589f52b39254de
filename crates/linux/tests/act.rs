//! Acting on a real process.

mod common;

use std::time::Duration;

use common::settings::{HUGE_PAGES, folios_of_64_kib, mthp};
use common::swap::Alone;
use common::{Obedient, attached, obey as be_obedient, part, root_or_skip};
use isotherm_core::{
    Act, Action, AddrRange, Applied, Budget, Destination, Destinations, Failure, Look, OpsError,
    PAGE_SIZE, PageFilter, PageKind, Space, Support, TargetId, Work,
};
use isotherm_linux::Vaddr;

#[test]
fn obey() {
    be_obedient();
}

const ALL: Budget = Budget { bytes: u64::MAX, time: Duration::from_secs(60) };
const MS: Duration = Duration::from_millis(1);

fn work(action: &Action, target: TargetId, range: AddrRange) -> Work<'_> {
    Work { action, target, range, budget: ALL, filters: &[], recheck: Duration::ZERO }
}

#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn apply(ops: &mut Vaddr, work: Work<'_>) -> Applied {
    let mut out = Vec::new();
    ops.apply(&[work], &mut out).unwrap();
    assert_eq!(out.len(), 1);
    out[0]
}

/// Tried, applied and passed, in pages.
fn pages(a: Applied) -> [u64; 3] {
    [a.tried, a.applied, a.passed].map(|bytes| bytes / PAGE_SIZE)
}

#[test]
fn what_is_resident_and_cold_is_paged_out() {
    if !root_or_skip("what_is_resident_and_cold_is_paged_out") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(1000, "small");
    process.touch(part(memory, 0, 400));
    let action = Action::PageOut;
    assert_eq!(ops.supports(&action), Support::Yes);
    let done = apply(&mut ops, Work { recheck: MS, ..work(&action, target, memory) });
    assert_eq!(pages(done), [400, 400, 600], "{done:?}");
    assert_eq!((done.failure, process.resident(memory)), (None, 0));
    let done = apply(&mut ops, Work { recheck: MS, ..work(&action, target, memory) });
    assert_eq!(pages(done), [0, 0, 1000], "it is out already: {done:?}");
}

/// A cold region a tenth of which is hot loses none of that.
#[test]
fn hot_pages_of_a_cold_region_stay() {
    if !root_or_skip("hot_pages_of_a_cold_region_stay") {
        return;
    }
    let Some(_alone) = Alone::with_swap(256) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(16_000, "small");
    process.touch(memory);
    let thread = process.keep_touching(memory, 10);
    let hot = |process: &Obedient| -> u64 {
        (0..1600).map(|i| process.resident(part(memory, i * 10, 1))).sum()
    };
    let before = process.major_faults(thread);
    let mut out = 0;
    for _ in 0..10 {
        let done = apply(&mut ops, Work { recheck: 100 * MS, ..work(&Action::PageOut, target, memory) });
        out += done.applied;
        assert_eq!(hot(&process), 1600);
        // Back, so that there is something cold again.
        let cold = (0..1600).map(|i| part(memory, i * 10 + 1, 9));
        cold.for_each(|c| process.touch(c));
    }
    assert_eq!(process.major_faults(thread), before);
    let out = out / PAGE_SIZE;
    assert!(out >= 10 * 14_400 * 9 / 10, "next to all that is cold went: {out} pages");
}
