//! Memory that is paged out, and memory that is skipped.

use std::cell::RefCell;
use std::time::Duration;

use isotherm_core::{
    Act, Action, AddrRange, Budget, Cause, OpsError, PAGE_SIZE, Support, TargetId, Work,
    WorkObserver,
};
use isotherm_linux::{Clearing, Hold, Vaddr};

use crate::common::settings::{HUGE_PAGES, folios_of_64_kib, mthp};
use crate::common::swap::Alone;
use crate::common::{attached, needs_root, part};
use crate::{ALL, MS, apply, huge, pages, with_memory, work};

#[test]
fn resident_cold_memory_is_paged_out() {
    needs_root!();
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

#[test]
fn unobservable_memory_is_left_alone() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let [locked, shared] = ["locked", "small"].map(|kind| {
        let memory = process.map(200, kind);
        process.touch(memory);
        memory
    });
    let child = process.tell("fork");
    process.touch(part(shared, 0, 50)); // copied: these are its own again
    for action in [Action::PageOut, Action::Cold, Action::LruPrio] {
        for (memory, own) in [(locked, 0), (shared, 50)] {
            let recheck = if action == Action::LruPrio { Duration::ZERO } else { MS };
            let done = apply(&mut ops, Work { recheck, ..work(&action, target, memory) });
            let gone = if action == Action::PageOut || own == 0 { own } else { 0 };
            assert_eq!(pages(done), [gone, gone, 200 - gone], "{} {done:?}", action.name());
        }
    }
    assert_eq!((process.resident(locked), process.resident(shared)), (200, 150));
    process.tell(&format!("reap {child}"));
}

#[test]
fn a_folio_of_which_a_part_is_touched_stays_whole() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let _huge = HUGE_PAGES.lock();
    let Some(settings) = folios_of_64_kib() else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(64 * 16, "huge");
    let came = mthp("anon_fault_alloc");
    process.touch(memory);
    assert!(mthp("anon_fault_alloc") >= came.map(|n| n + 60), "no folios of 64 KiB came");
    drop(settings);
    // One page of every second folio.
    process.keep_touching(part(memory, 5, 63 * 16), 32);
    let splits = mthp("split");
    let out = Work { recheck: 100 * MS, ..work(&Action::PageOut, target, memory) };
    // Half a folio at either end was not requested, and is not split.
    let range = part(memory, 8, 63 * 16);
    let done = apply(&mut ops, Work { range, ..out.clone() });
    assert_eq!(pages(done)[1..], [31 * 16, 32 * 16], "{done:?}");
    assert_eq!(process.resident(memory), 33 * 16);
    let whole = (0..64).all(|i| [0, 16].contains(&process.resident(part(memory, i * 16, 16))));
    assert!(whole, "a folio has lost a part");
    assert_eq!(mthp("split"), splits, "none was split");
}

#[test]
fn a_huge_page_goes_whole_or_stays() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target, memory) = with_memory(4 * 512, "huge");
    assert_eq!(huge(&mut ops, target, memory), 4, "no huge pages to be had");
    // One page of the first block, and one of the third.
    process.keep_touching(part(memory, 100, 1025), 1024);
    let out = work(&Action::PageOut, target, memory);
    let out = Work { recheck: 100 * MS, ..out };
    let half = apply(&mut ops, Work { range: part(memory, 512, 256), ..out.clone() });
    assert_eq!(pages(half), [0, 0, 256], "not in part: {half:?}");
    let budget = Budget { bytes: 511 * PAGE_SIZE, ..ALL };
    let little = apply(&mut ops, Work { budget, ..out.clone() });
    assert_eq!(little.tried, 0, "nor for want of budget: {little:?}");
    let done = apply(&mut ops, out);
    assert_eq!(pages(done), [1024, 1024, 1024], "{done:?}");
    assert_eq!(huge(&mut ops, target, memory), 2, "the others are whole");
}

#[test]
fn a_budget_is_kept_to_the_page_and_the_next_goes_on_behind() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target, memory) = with_memory(3000, "small");
    let mut from = memory.start;
    for n in [1, 777, 1500, 5000] {
        let budget = Budget { bytes: n * PAGE_SIZE, ..ALL };
        let range = AddrRange::new(from, memory.end);
        let left = range.len() / PAGE_SIZE;
        let done =
            apply(&mut ops, Work { budget, range, ..work(&Action::PageOut, target, memory) });
        assert_eq!(pages(done), [n.min(left), n.min(left), 0], "{done:?}");
        from += done.tried + done.passed;
    }
    assert_eq!((from, process.resident(memory)), (memory.end, 0));
    let budget = Budget { bytes: 0, ..ALL };
    let nothing = apply(&mut ops, Work { budget, ..work(&Action::WillNeed, target, memory) });
    assert_eq!(pages(nothing), [0, 0, 0]);
    process.touch(memory);
    let budget = Budget { time: MS, ..ALL };
    let hasty = apply(&mut ops, Work { budget, ..work(&Action::PageOut, target, memory) });
    assert!(hasty.tried < 3000 * PAGE_SIZE && hasty.failure.is_none(), "{hasty:?}");
}

/// The ranges of works that have begun.
#[derive(Debug, Default)]
struct Begun(RefCell<Vec<AddrRange>>);

impl WorkObserver for Begun {
    fn begins(&self, work: &Work<'_>) {
        self.0.borrow_mut().push(work.range);
    }
}

/// Each work advances by a step, so that the total time is soon used up.
#[test]
fn of_many_little_works_the_last_are_left() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (process, mut ops, target, memory) = with_memory(3000, "small");
    let part = |n: u64| {
        let start = memory.start + n * 30 * PAGE_SIZE;
        AddrRange::new(start, start + 30 * PAGE_SIZE)
    };
    let begun = Begun::default();
    let cause = Cause { scheme: "out", hz: 0.0, age: Duration::ZERO, begins: Some(&begun) };
    let out = |time: Duration| {
        let (budget, cause) = (Budget { time, ..ALL }, Some(cause));
        let work =
            |n| Work { range: part(n), budget, cause, ..work(&Action::PageOut, target, memory) };
        (0..100).map(work).collect::<Vec<_>>()
    };
    let mut done = Vec::new();
    ops.apply(&out(Duration::from_nanos(1)), &mut done).unwrap();
    assert!((1..100).contains(&done.len()), "{} of 100 were done", done.len());
    let gone = done.iter().map(|d| d.applied).sum::<u64>() / PAGE_SIZE;
    // The last one may stop at a step: if others have the CPU, a step is few pages.
    let whole = done.len() as u64 - 1;
    assert!(done[..whole as usize].iter().all(|d| d.applied == 30 * PAGE_SIZE), "{done:?}");
    assert!((whole * 30..=(whole + 1) * 30).contains(&gone), "{done:?}");
    assert_eq!(process.resident(memory), 3000 - gone);
    let reported: Vec<AddrRange> = (0..done.len() as u64).map(part).collect();
    assert_eq!(begun.0.take(), reported, "of the others nobody is told");
    done.clear();
    ops.apply(&out(ALL.time), &mut done).unwrap();
    assert_eq!((done.len(), process.resident(memory)), (100, 0));
}

#[test]
fn invalid_works_are_errors() {
    needs_root!();
    let (process, mut ops, target, memory) = with_memory(10, "small");
    let cold = work(&Action::Cold, target, memory);
    let bytes = AddrRange::new(memory.start + 1, memory.end);
    let mut out = Vec::new();
    let works = [cold.clone(), Work { range: bytes, ..cold.clone() }, cold.clone()];
    let said = ops.apply(&works, &mut out).unwrap_err();
    assert!(said.to_string().contains("page"), "{said}");
    assert_eq!(out.len(), 1, "what came before it is done");
    let nobody = Work { target: TargetId(9), ..cold.clone() };
    assert_eq!(ops.apply(&[nobody], &mut out), Err(OpsError::NoTarget(TargetId(9))));
    let mut all_at_once = Vaddr::clearing(Clearing::Refs).unwrap();
    all_at_once.attach(process.pid()).unwrap();
    assert!(matches!(all_at_once.supports(&Action::Cold), Support::No(_)));
    assert!(all_at_once.apply(&[cold], &mut out).is_err());
}
