//! The simulated machine: bits, pages, mappings, actions and their truth.

// clippy allows these in tests; here also for their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use isotherm_core::{
    Act, Action, AddrRange, Applied, Ask, Budget, Cost, Failure, Liveness, Look, Nanos, OpsError,
    PAGE_SIZE, PageFilter, PageKind, Seen, Space, TargetId, Unknown, Work,
};
use isotherm_sim::{Machine, MappingSpec, Ops, SimError, Stretch, TouchPattern};

const MIB: u64 = 1 << 20;
const ALL: Budget = Budget { bytes: u64::MAX, time: Duration::MAX };

/// `len` pages from the `at`-th of an address space that begins at a multiple of 2 MiB.
fn pages(at: u64, len: u64) -> AddrRange {
    let start = (1 << 30) + at * PAGE_SIZE;
    AddrRange::new(start, start + len * PAGE_SIZE)
}

fn machine(lay: impl FnOnce(&mut Machine, TargetId)) -> (Ops, TargetId) {
    let mut machine = Machine::new(7);
    let target = machine.spawn();
    lay(&mut machine, target);
    (Ops::new(machine), target)
}

fn anonymous(len: u64) -> (Ops, TargetId) {
    machine(|m, t| m.map(t, pages(0, len), MappingSpec::anonymous()).unwrap())
}

fn look(ops: &mut Ops, target: TargetId, range: AddrRange, clear: bool) -> (Seen, Cost) {
    let mut out = Vec::new();
    let cost = ops.look(&[Ask { target, range, clear }], &mut out).unwrap();
    (out[0], cost)
}

fn young(ops: &mut Ops, target: TargetId, range: AddrRange) -> u32 {
    look(ops, target, range, false).0.young
}

/// An action on all of `range`, without a limit.
fn work(action: &Action, target: TargetId, range: AddrRange) -> Work<'_> {
    Work { action, target, range, budget: ALL, filters: &[], recheck: Duration::ZERO, cause: None }
}

fn apply(ops: &mut Ops, work: Work<'_>) -> Applied {
    let mut out = Vec::new();
    ops.apply(&[work], &mut out).unwrap();
    out[0]
}

fn wait(ops: &Ops, ms: u64) {
    ops.machine().advance(Duration::from_millis(ms));
}

fn poisson(hz: f64) -> TouchPattern {
    TouchPattern::Poisson { hz }
}

#[test]
fn a_bit_stays_set_until_it_is_cleared_and_is_set_by_a_touch() {
    let (mut ops, t) = anonymous(16);
    assert_eq!(young(&mut ops, t, pages(0, 16)), 16, "populated pages are young");
    let (seen, cost) = look(&mut ops, t, pages(0, 16), true);
    assert_eq!((seen.young, cost.clears, cost.pages), (16, 1, 16));
    wait(&ops, 100);
    let (seen, cost) = look(&mut ops, t, pages(0, 16), true);
    assert_eq!((seen.young, cost.clears), (0, 0));
    assert_eq!((seen.read_at, seen.cleared_at), (Nanos(100_000_000), Nanos(100_000_000)));
    ops.machine().touch(t, pages(4, 4), poisson(1000.0)).unwrap();
    wait(&ops, 100);
    assert_eq!(young(&mut ops, t, pages(0, 16)), 4);
    assert_eq!(young(&mut ops, t, pages(0, 16)), 4, "reading clears nothing");
    ops.machine().rest(t, pages(4, 2)).unwrap();
    look(&mut ops, t, pages(0, 16), true);
    wait(&ops, 100);
    assert_eq!(young(&mut ops, t, pages(0, 16)), 2);
}

#[test]
fn a_look_agrees_with_the_truth() {
    let (mut ops, t) = anonymous(512);
    ops.machine().touch(t, pages(100, 300), poisson(2.0)).unwrap();
    wait(&ops, 5000);
    look(&mut ops, t, pages(0, 512), true);
    let cleared = ops.machine().now();
    wait(&ops, 300);
    for page in 0..512 {
        let bit = young(&mut ops, t, pages(page, 1)) == 1;
        let machine = ops.machine();
        let last = machine.truth(t).unwrap().last_touch(pages(page, 1).start, machine.now());
        assert_eq!(bit, last.is_some_and(|l| l > cleared), "page {page}: {last:?}");
    }
}

fn stretch(at: u64, len: u64, stride: u64) -> Stretch {
    let range = pages(at, len);
    Stretch { start: range.start, end: range.end, name: String::new(), stride, huge: false }
}

#[test]
fn truth_counts_touches_and_pages() {
    let (ops, t) = anonymous(1000);
    let every = Duration::from_millis(10);
    ops.machine().touch(t, pages(100, 100), TouchPattern::Periodic { every }).unwrap();
    ops.machine().touch(t, pages(150, 100), TouchPattern::Periodic { every: 2 * every }).unwrap();
    let of = Box::new(TouchPattern::Periodic { every });
    ops.machine().touch(t, pages(600, 100), TouchPattern::Sparse { nth: 4, of }).unwrap();
    wait(&ops, 2000);
    ops.machine().rest(t, pages(0, 400)).unwrap();
    wait(&ops, 5000);
    let machine = ops.machine();
    let truth = machine.truth(t).unwrap();
    let parts = [
        stretch(0, 100, 1),
        stretch(100, 50, 1),
        stretch(150, 50, 1),
        stretch(600, 100, 4),
        stretch(600, 100, 1),
    ];
    let count = |from: u64, to: u64| {
        truth.interval(&parts, "", Nanos(from * 1_000_000), Nanos(to * 1_000_000))
    };
    let (early, late) = (count(1000, 3000), count(2010, 6990));
    assert_eq!(early.touches, [0, 5000, 7500, 5000, 5000]);
    assert_eq!(early.touched, [0, 50, 50, 25, 25]);
    assert_eq!(early.idle, [0, 0, 0, 0, 0]);
    assert_eq!((late.touches[1], late.touched[1]), (0, 0));
    assert_eq!(late.idle[..2], [100, 0]);
    assert_eq!(late.idle[3..], [0, 75]);
    let idle = count(6000, 7030).idle;
    assert_eq!(idle[..3], [100, 50, 50]);
    assert_eq!(truth.rate_hz(pages(160, 1).start + 5, Nanos(0), Nanos(1_000_000_000)), 150.0);
}

#[test]
fn a_huge_page_has_one_bit() {
    let (mut ops, t) = machine(|m, t| {
        m.map(t, pages(500, 600), MappingSpec::anonymous().huge()).unwrap();
        m.touch(t, pages(700, 1), poisson(100.0)).unwrap();
        m.touch(t, pages(1030, 1), poisson(100.0)).unwrap();
    });
    // One huge page fits into the pages 500 to 1100: 512 to 1024.
    for at in [500, 512, 900, 1024] {
        look(&mut ops, t, pages(at, 12), true);
    }
    wait(&ops, 500);
    assert_eq!(young(&mut ops, t, pages(512, 16)), 16);
    assert_eq!(young(&mut ops, t, pages(1024, 12)), 1);
    assert_eq!(young(&mut ops, t, pages(500, 12)), 0);
    let done = apply(&mut ops, work(&Action::PageOut, t, pages(600, 450)));
    assert_eq!(done.applied, 26 * PAGE_SIZE, "a part of a huge page is let alone");
    assert_eq!(done.passed, 424 * PAGE_SIZE);
}

#[test]
fn memory_is_absent_before_the_first_touch_and_after_being_paged_out() {
    let (mut ops, t) = machine(|m, t| {
        m.map(t, pages(0, 64), MappingSpec::heap()).unwrap();
        m.touch(t, pages(0, 32), TouchPattern::Sweep { every: Duration::from_secs(1) }).unwrap();
    });
    let present = |ops: &mut Ops| look(ops, t, pages(0, 64), false).0.present;
    assert_eq!(present(&mut ops), 0);
    wait(&ops, 500);
    assert_eq!(present(&mut ops), 16);
    wait(&ops, 500);
    assert_eq!(present(&mut ops), 32);
    let done = apply(&mut ops, work(&Action::PageOut, t, pages(0, 64)));
    let half = 32 * PAGE_SIZE;
    assert_eq!(done, Applied { tried: half, applied: half, passed: half, ..Applied::default() });
    assert_eq!(present(&mut ops), 0);
    wait(&ops, 250);
    assert_eq!(present(&mut ops), 8);
    let done = apply(&mut ops, work(&Action::WillNeed, t, pages(0, 32)));
    assert_eq!(done.applied, 24 * PAGE_SIZE);
    let (seen, _) = look(&mut ops, t, pages(0, 32), false);
    assert_eq!((seen.present, seen.young), (32, 8), "read ahead, not accessed");
}

#[test]
fn actions_keep_their_budget_and_skip_unknown_memory() {
    let (mut ops, t) = anonymous(64);
    ops.machine().set_unknown(t, pages(0, 16), Some(Unknown::Mlocked)).unwrap();
    let budget = Budget { bytes: 8 * PAGE_SIZE + 5, ..ALL };
    let done = apply(&mut ops, Work { budget, ..work(&Action::PageOut, t, pages(0, 64)) });
    assert_eq!((done.tried, done.applied), (8 * PAGE_SIZE, 8 * PAGE_SIZE));
    assert_eq!(done.passed, 16 * PAGE_SIZE, "what is unknown; the rest was not come to");
    let (seen, _) = look(&mut ops, t, pages(0, 64), false);
    assert_eq!((seen.present, seen.unknown.0[Unknown::Mlocked.index()]), (40, 16));
    assert_eq!(apply(&mut ops, work(&Action::Stat, t, pages(0, 64))).applied, 0);
    apply(&mut ops, work(&Action::Cold, t, pages(0, 64)));
    assert_eq!(young(&mut ops, t, pages(0, 64)), 0);
}

#[test]
fn a_second_look_skips_touched_memory() {
    let (mut ops, t) = anonymous(64);
    look(&mut ops, t, pages(0, 64), true);
    ops.machine().touch(t, pages(8, 8), poisson(1000.0)).unwrap();
    wait(&ops, 100);
    let recheck = Duration::from_millis(5);
    let done = apply(&mut ops, Work { recheck, ..work(&Action::PageOut, t, pages(0, 64)) });
    assert_eq!((done.applied, done.passed), (56 * PAGE_SIZE, 8 * PAGE_SIZE));
    let (seen, _) = look(&mut ops, t, pages(0, 64), false);
    assert_eq!((seen.present, seen.young), (8, 8));
}

#[test]
fn the_first_filter_that_a_page_answers_to_decides() {
    let (mut ops, t) = machine(|m, t| {
        m.map(t, pages(512, 512), MappingSpec::anonymous().huge()).unwrap();
        m.map(t, pages(1024, 512), MappingSpec::anonymous()).unwrap();
    });
    look(&mut ops, t, pages(1024, 256), true);
    let huge = PageKind::HugePage { min: 2 * MIB, max: 2 * MIB };
    let filter = |kind, matching, allow| PageFilter { kind, matching, allow };
    let mut tried = |filters: &[PageFilter]| {
        apply(&mut ops, Work { filters, ..work(&Action::Stat, t, pages(512, 1024)) }).tried
            / PAGE_SIZE
    };
    assert_eq!(tried(&[]), 1024);
    assert_eq!(tried(&[filter(huge, true, false)]), 512);
    assert_eq!(tried(&[filter(huge, true, true)]), 512);
    assert_eq!(tried(&[filter(PageKind::Young, false, true)]), 256);
    assert_eq!(tried(&[filter(huge, true, true), filter(PageKind::Young, true, false)]), 768);
    assert_eq!(tried(&[filter(PageKind::Node(0), true, false)]), 0);
}

#[test]
fn unmapped_memory_is_gone_and_invalid_calls_are_refused() {
    let (mut ops, t) = anonymous(8);
    let done = apply(&mut ops, work(&Action::PageOut, t, pages(0, 64)));
    assert_eq!((done.tried, done.applied), (64 * PAGE_SIZE, 8 * PAGE_SIZE));
    assert_eq!(done.failure, Some(Failure::Gone));
    ops.machine().end(t).unwrap();
    let done = apply(&mut ops, work(&Action::PageOut, t, pages(0, 8)));
    assert_eq!((done.applied, done.failure), (0, Some(Failure::Gone)));
    let mut out = Vec::new();
    let odd = work(&Action::PageOut, t, AddrRange::new(5, 4096));
    let works = [work(&Action::Stat, t, pages(0, 8)), odd];
    assert!(matches!(ops.apply(&works, &mut out), Err(OpsError::Failed(_))));
    assert_eq!(out.len(), 1, "what was done before is told");
    let lists = [work(&Action::LruPrio, t, pages(0, 8))];
    assert!(matches!(ops.apply(&lists, &mut out), Err(OpsError::Failed(_))));
}

#[test]
fn unknown_marks_can_be_moved() {
    let (mut ops, t) = anonymous(32);
    ops.machine().set_unknown(t, pages(0, 32), Some(Unknown::Shared)).unwrap();
    ops.machine().set_unknown(t, pages(8, 8), Some(Unknown::Dma)).unwrap();
    ops.machine().set_unknown(t, pages(28, 4), None).unwrap();
    let (seen, cost) = look(&mut ops, t, pages(0, 32), true);
    let by = |why: Unknown| seen.unknown.0[why.index()];
    assert_eq!((by(Unknown::Shared), by(Unknown::Dma), seen.present), (20, 8, 4));
    assert_eq!((cost.clears, seen.pages), (1, 32));
}

#[test]
fn a_look_beyond_mapped_memory_is_dropped() {
    let (mut ops, t) = anonymous(8);
    assert_eq!(look(&mut ops, t, pages(4, 8), true).0, Seen::default());
    ops.machine().map(t, pages(8, 8), MappingSpec::stack()).unwrap();
    assert_eq!(look(&mut ops, t, pages(4, 8), true).0.pages, 8, "across two mappings");
    ops.machine().unmap(t, pages(6, 1)).unwrap();
    assert_eq!(look(&mut ops, t, pages(4, 8), true).0, Seen::default());
    let mapped: Vec<_> = ops.machine().space(t).unwrap().mappings().map(|m| m.range).collect();
    assert_eq!(mapped, [pages(0, 6), pages(7, 1), pages(8, 8)]);
}

#[test]
fn unmapping_forgets_and_growing_keeps() {
    let (mut ops, t) = anonymous(32);
    ops.machine().touch(t, pages(0, 32), poisson(1000.0)).unwrap();
    look(&mut ops, t, pages(0, 32), true);
    ops.machine().unmap(t, pages(8, 8)).unwrap();
    ops.machine().map(t, pages(8, 4), MappingSpec::anonymous().on_touch()).unwrap();
    ops.machine().grow(t, pages(20, 1).start, pages(12, 28)).unwrap();
    wait(&ops, 100);
    let young = |ops: &mut Ops, at, len| young(ops, t, pages(at, len));
    assert_eq!((young(&mut ops, 0, 8), young(&mut ops, 16, 16)), (8, 16));
    assert_eq!(look(&mut ops, t, pages(8, 4), false).0.present, 0, "nothing touches the new one");
    look(&mut ops, t, pages(12, 4), true);
    wait(&ops, 100);
    assert_eq!((young(&mut ops, 12, 4), young(&mut ops, 32, 8)), (0, 8), "fresh pages are young");
}

#[test]
fn invalid_values_are_refused() {
    let (ops, t) = anonymous(8);
    let mut m = ops.machine();
    let (odd, nobody) = (AddrRange::new(5, 4096), TargetId(9));
    assert_eq!(m.map(t, pages(4, 8), MappingSpec::heap()), Err(SimError::Taken(pages(4, 8))));
    assert_eq!(m.map(t, odd, MappingSpec::heap()), Err(SimError::Unaligned(odd)));
    assert_eq!(m.unmap(t, pages(0, 0)), Err(SimError::Unaligned(pages(0, 0))));
    assert_eq!(m.touch(t, pages(4, 8), poisson(1.0)), Err(SimError::Unmapped(pages(4, 8))));
    assert_eq!(m.grow(t, 0, pages(0, 9)), Err(SimError::Unmapped(pages(0, 9))));
    assert_eq!(m.grow(t, pages(1, 1).start, pages(1, 9)), Err(SimError::Shrinks(pages(1, 9))));
    assert_eq!(m.exec(nobody), Err(SimError::NoTarget(nobody)));
    m.end(t).unwrap();
    assert_eq!(m.exec(t), Err(SimError::Gone(t)));
}

#[test]
fn each_handle_hears_of_exec_once_and_of_the_end() {
    let (mut ops, t) = anonymous(8);
    let mut other = ops.clone();
    let mut out = Vec::new();
    let mut ask = |ops: &mut Ops| ops.mappings(t, &mut out).map(|alive| (alive, out.len()));
    assert_eq!(ask(&mut ops), Ok((Liveness::Alive, 1)));
    assert_eq!(ask(&mut other), Ok((Liveness::Alive, 1)));
    ops.machine().exec(t).unwrap();
    assert_eq!(ask(&mut ops), Ok((Liveness::Replaced, 0)));
    assert_eq!(ask(&mut ops), Ok((Liveness::Alive, 0)));
    assert_eq!(ask(&mut other), Ok((Liveness::Replaced, 0)));
    wait(&ops, 30);
    ops.machine().end(t).unwrap();
    wait(&ops, 30);
    assert_eq!(ask(&mut ops), Ok((Liveness::Gone, 0)));
    assert_eq!(ops.ran(t), Some(Duration::from_millis(30)));
    assert_eq!(ops.mappings(TargetId(5), &mut Vec::new()), Err(OpsError::NoTarget(TargetId(5))));
}

#[test]
fn holding_the_machine_is_an_error_not_a_crash() {
    let (mut ops, t) = anonymous(8);
    let other = ops.clone();
    let held = other.machine();
    assert!(matches!(ops.mappings(t, &mut Vec::new()), Err(OpsError::Failed(_))));
    drop(held);
    assert!(ops.mappings(t, &mut Vec::new()).is_ok());
}

/// All answers of 50 looks at random-ish places.
fn history(seed: u64) -> Vec<Seen> {
    let mut m = Machine::new(seed);
    let t = m.spawn();
    m.map(t, pages(0, 4096), MappingSpec::anonymous()).unwrap();
    m.touch(t, pages(0, 2048), poisson(5.0)).unwrap();
    m.touch(t, pages(1024, 2048), poisson(20.0)).unwrap();
    let mut ops = Ops::new(m);
    let one = |i: u64| {
        wait(&ops.clone(), 13);
        look(&mut ops, t, pages(i * 997 % 4000, 16), i.is_multiple_of(3)).0
    };
    (0..200).map(one).collect()
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

/// A day passes at once, and 8 GiB cost no more than their looked-at part.
#[test]
fn time_and_size_are_cheap() {
    let (mut ops, t) = anonymous(8192 * MIB / PAGE_SIZE);
    let everything = pages(0, 8192 * MIB / PAGE_SIZE);
    ops.machine().touch(t, everything, poisson(100.0)).unwrap();
    let half =
        TouchPattern::Moving { window: 4096 * MIB, every: Duration::from_millis(1), hz: 0.001 };
    ops.machine().touch(t, everything, half).unwrap();
    for day in 1..1000 {
        wait(&ops, 24 * 3600 * 1000);
        assert_eq!(look(&mut ops, t, pages(day * 1000, 16), true).0.young, 16);
    }
}
