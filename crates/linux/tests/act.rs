//! Acting on a real process.

mod common;

use std::time::Duration;

use common::settings::{HUGE_PAGES, Setting, folios_of_64_kib, mthp};
use common::swap::Alone;
use common::{Obedient, attached, obey as be_obedient, part, root_or_skip};
use isotherm_core::{
    Act, Action, AddrRange, Applied, Budget, Destination, Destinations, Failure, Look, OpsError,
    PAGE_SIZE, PageFilter, PageKind, Space, Support, TargetId, Work,
};
use isotherm_linux::proc::{KPageFlags, Pagemap};
use isotherm_linux::{Clearing, Hold, Vaddr};

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

/// Huge pages of `range`.
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn huge(ops: &mut Vaddr, target: TargetId, range: AddrRange) -> usize {
    let mut blocks = Vec::new();
    Look::survey(ops).unwrap().survey(target, &[range], &mut blocks).unwrap();
    blocks.iter().filter(|b| b.huge).count()
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
    let before = process.major_faults(thread);
    let mut out = 0;
    for _ in 0..10 {
        let done =
            apply(&mut ops, Work { recheck: 100 * MS, ..work(&Action::PageOut, target, memory) });
        out += done.applied;
        assert_eq!(process.resident_each(memory, 10), 1600);
        // Back, so that there is something cold again.
        let cold = (0..1600).map(|i| part(memory, i * 10 + 1, 9));
        cold.for_each(|c| process.touch(c));
    }
    assert_eq!(process.major_faults(thread), before);
    let out = out / PAGE_SIZE;
    assert!(out >= 10 * 14_400 * 9 / 10, "next to all that is cold went: {out} pages");
}

/// Accessed bits were cleared behind our back, and what a TLB holds is accessed without setting them.
#[test]
fn what_a_tlb_holds_stays_too() {
    if !root_or_skip("what_a_tlb_holds_stays_too") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    // There is always something in use elsewhere.
    let elsewhere = process.map(512, "small");
    let memory = process.map(1000, "small");
    [elsewhere, memory].into_iter().for_each(|m| process.touch(m));
    let thread = process.keep_touching(memory, 100);
    let refs = format!("/proc/{}/clear_refs", process.pid());
    let before = process.major_faults(thread);
    for _ in 0..3 {
        std::fs::write(&refs, "1").unwrap();
        process.tell(&format!("read {} 512", elsewhere.start));
        apply(&mut ops, Work { recheck: 200 * MS, ..work(&Action::PageOut, target, memory) });
        assert_eq!(process.resident_each(memory, 100), 10);
    }
    assert_eq!(process.major_faults(thread), before);
}

/// Somebody else clears accessed bits while touches are waited for, as kswapd may.
#[test]
fn what_somebody_else_clears_was_touched() {
    if !root_or_skip("what_somebody_else_clears_was_touched") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(1000, "small");
    process.touch(memory);
    let meddler = std::thread::spawn(move || {
        std::thread::sleep(150 * MS);
        process.tell(&format!("read {} 100", part(memory, 300, 100).start));
        std::thread::sleep(450 * MS);
        std::fs::write(format!("/proc/{}/clear_refs", process.pid()), "1").unwrap();
        process
    });
    let recheck = 800 * MS;
    let done = apply(&mut ops, Work { recheck, ..work(&Action::PageOut, target, memory) });
    let process = meddler.join().unwrap();
    assert_eq!(pages(done), [900, 900, 100], "{done:?}");
    assert_eq!(process.resident(part(memory, 300, 100)), 100);
}

/// Somebody else has its CPU for much longer than is waited for touches.
#[test]
fn who_does_not_get_to_run_is_waited_for() {
    if !root_or_skip("who_does_not_get_to_run_is_waited_for") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(1000, "small");
    process.touch(memory);
    process.keep_touching(memory, 10);
    let cpus =
        rustix::thread::sched_getaffinity(rustix::process::Pid::from_raw(process.pid())).unwrap();
    // We have another one, if there is one.
    let mut ours = rustix::thread::sched_getaffinity(None).unwrap();
    let taken: Vec<usize> = (0..1024).filter(|&cpu| cpus.is_set(cpu)).collect();
    taken.iter().for_each(|&cpu| ours.unset(cpu));
    let _ = rustix::thread::sched_setaffinity(None, &ours);
    let (began, has_begun) = std::sync::mpsc::channel();
    let hog = std::thread::spawn(move || {
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        let highest = libc::sched_param { sched_priority: 1 };
        // SAFETY: it reads the parameter, and changes this thread alone.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const highest) };
        began.send(()).unwrap();
        let begin = std::time::Instant::now();
        while begin.elapsed() < 100 * MS {
            std::hint::spin_loop();
        }
    });
    has_begun.recv().unwrap();
    let done = apply(&mut ops, Work { recheck: 20 * MS, ..work(&Action::PageOut, target, memory) });
    hog.join().unwrap();
    assert_eq!(done.failure, None);
    let hot = process.resident_each(memory, 10);
    assert_eq!((hot, pages(done)[1]), (100, 900), "{done:?}");
}

#[test]
fn what_cannot_be_seen_is_let_alone() {
    if !root_or_skip("what_cannot_be_seen_is_let_alone") {
        return;
    }
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
    if !root_or_skip("a_folio_of_which_a_part_is_touched_stays_whole") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let _huge = HUGE_PAGES.lock();
    let Some(settings) = folios_of_64_kib() else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(64 * 16, "huge");
    let came = mthp("anon_fault_alloc");
    process.touch(memory);
    assert!(mthp("anon_fault_alloc") >= came.map(|n| n + 60), "no folios of 64 KiB came");
    drop(settings);
    // One page of each second folio.
    process.keep_touching(part(memory, 5, 63 * 16), 32);
    let splits = mthp("split");
    let out = Work { recheck: 100 * MS, ..work(&Action::PageOut, target, memory) };
    // Half a folio at either end was not asked for, and is not parted.
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
    if !root_or_skip("a_huge_page_goes_whole_or_stays") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(4 * 512, "huge");
    process.touch(memory);
    assert_eq!(huge(&mut ops, target, memory), 4, "no huge pages to be had");
    // One page of the first, and the third.
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
    if !root_or_skip("a_budget_is_kept_to_the_page_and_the_next_goes_on_behind") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(3000, "small");
    process.touch(memory);
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

#[test]
fn several_works_wait_once() {
    if !root_or_skip("several_works_wait_once") {
        return;
    }
    let (mut process, mut ops, target) = attached();
    let memory = process.map(1000, "small");
    process.touch(memory);
    let cold = Work { recheck: 50 * MS, ..work(&Action::Cold, target, memory) };
    let parts = (0..100).map(|i| Work { range: part(memory, i * 10, 10), ..cold.clone() });
    let works: Vec<Work<'_>> = parts.collect();
    let (mut out, begin) = (Vec::new(), std::time::Instant::now());
    ops.apply(&works, &mut out).unwrap();
    let took = begin.elapsed();
    assert!(took >= 50 * MS && took < 1000 * MS, "{took:?}");
    assert!(out.len() == 100 && out.iter().all(|a| pages(*a) == [10, 10, 0]), "{out:?}");
}

#[test]
fn without_swap_it_is_said_and_nothing_is_tried_in_vain() {
    if !root_or_skip("without_swap_it_is_said_and_nothing_is_tried_in_vain") {
        return;
    }
    let Some(_alone) = Alone::without_swap() else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(3000, "small");
    process.touch(memory);
    let said = ops.supports(&Action::PageOut);
    assert!(matches!(&said, Support::No(why) if why.contains("no swap")), "{said:?}");
    let done = apply(&mut ops, work(&Action::PageOut, target, memory));
    assert_eq!((done.applied, done.failure), (0, Some(Failure::NoRoom)));
    assert!(done.tried <= 64 * PAGE_SIZE, "it stops at once: {done:?}");
    assert_eq!(process.resident(memory), 3000);
}

#[test]
fn full_swap_is_no_room() {
    if !root_or_skip("full_swap_is_no_room") {
        return;
    }
    let Some(_alone) = Alone::with_swap(8) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(4096, "small");
    process.touch(memory);
    let done = apply(&mut ops, work(&Action::PageOut, target, memory));
    assert_eq!(done.failure, Some(Failure::NoRoom), "{done:?}");
    let out = done.applied / PAGE_SIZE;
    assert!((1024..=2048).contains(&out), "{done:?}");
    assert_eq!(process.resident(memory), 4096 - out);
    let said = ops.supports(&Action::PageOut);
    assert!(matches!(&said, Support::No(why) if why.contains("full")), "{said:?}");
    let again = apply(&mut ops, work(&Action::PageOut, target, memory));
    assert!(again.applied == 0 && again.tried <= 64 * PAGE_SIZE, "no spinning: {again:?}");
}

#[test]
fn what_was_paged_out_is_read_back() {
    if !root_or_skip("what_was_paged_out_is_read_back") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(1000, "small");
    process.touch(part(memory, 0, 600));
    apply(&mut ops, work(&Action::PageOut, target, part(memory, 0, 300)));
    let faults = |p: &Obedient| p.major_faults(u64::from(p.pid().unsigned_abs()));
    let back = apply(&mut ops, work(&Action::WillNeed, target, memory));
    assert_eq!(pages(back), [300, 300, 700], "{back:?}");
    let thread = process.keep_touching(memory, 1);
    while process.resident(memory) < 600 {
        std::thread::sleep(MS);
    }
    let waited = process.major_faults(thread) + faults(&process);
    assert!(waited <= 30, "all had to wait for swap otherwise: {waited}");
}

/// How many pages of `range` have this flag (a bit of `/proc/kpageflags`).
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn flagged(process: &Obedient, range: AddrRange, bit: u32) -> usize {
    let root = "/".as_ref();
    let mut pagemap = Pagemap::open(root, process.pid()).unwrap();
    let frames: Vec<u64> =
        pagemap.read(range).filter(|e| e.is_present()).map(|e| e.frame()).collect();
    let flags = KPageFlags::open(root).unwrap().of(&frames).unwrap();
    flags.iter().filter(|f| f.0 >> bit & 1 == 1).count()
}

const ACTIVE: u32 = 6;

#[test]
fn pages_move_up_and_down_the_lists() {
    if !root_or_skip("pages_move_up_and_down_the_lists") {
        return;
    }
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    let small = process.map(1000, "small");
    let huge = process.map(512, "huge");
    [small, huge].into_iter().for_each(|m| process.touch(m));
    let down = Work { recheck: MS, ..work(&Action::LruDeprio, target, small) };
    let done = apply(&mut ops, down);
    assert!(pages(done)[1] >= 990, "{done:?}");
    assert_eq!(flagged(&process, small, ACTIVE), 0);
    let done = apply(&mut ops, work(&Action::LruPrio, target, part(small, 0, 500)));
    assert_eq!(pages(done), [500, 500, 0], "{done:?}");
    let generations = std::path::Path::new("/sys/kernel/mm/lru_gen").exists();
    let active = flagged(&process, small, ACTIVE);
    assert!(generations || (450..=500).contains(&active), "{active}");
    let done = apply(&mut ops, work(&Action::LruPrio, target, huge));
    assert_eq!((pages(done), done.failure), ([0, 0, 512], Some(Failure::Refused)));
}

#[test]
fn huge_pages_are_made_of_what_is_used() {
    if !root_or_skip("huge_pages_are_made_of_what_is_used") {
        return;
    }
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    // Five blocks of small pages, of memory for which huge ones are not forbidden.
    let _madvise = Setting::set("/sys/kernel/mm/transparent_hugepage/enabled", "madvise");
    let area = process.map(7 * 512, "plain");
    let first = (512 - area.start / PAGE_SIZE % 512) % 512;
    let blocks = part(area, first, 5 * 512);
    let block = |i: u64, touched: u64| part(blocks, i * 512, touched);
    for (i, resident) in [(0, 512), (1, 512), (2, 448), (3, 447), (4, 512)] {
        process.touch(block(i, resident));
    }
    assert_eq!(huge(&mut ops, target, blocks), 0);
    let mut cleared = Vec::new();
    ops.mappings(target, &mut Vec::new()).unwrap();
    Look::survey(&mut ops).unwrap().clear(target, &[blocks], &mut cleared).unwrap();
    for (i, touched) in [(0, 512), (1, 440), (2, 448), (3, 447)] {
        process.touch(block(i, touched));
    }
    let budget = Budget { bytes: 2 << 20, ..ALL };
    let one = apply(&mut ops, Work { budget, ..work(&Action::HugePage, target, blocks) });
    assert_eq!(pages(one)[..2], [512, 512], "{one:?}");
    assert_eq!(huge(&mut ops, target, blocks), 1);
    let done = apply(&mut ops, work(&Action::HugePage, target, blocks));
    assert_eq!(pages(done), [512, 512, 4 * 512], "{done:?}");
    assert_eq!(huge(&mut ops, target, blocks), 2);
    // What was touched before the wait counts as well: 440 and 72 others.
    process.touch(block(1, 512));
    let waited = Work { recheck: MS, ..work(&Action::HugePage, target, block(1, 512)) };
    assert_eq!(pages(apply(&mut ops, waited)), [512, 512, 0]);
    let small = process.map(2048, "small");
    process.touch(small);
    let refused = apply(&mut ops, work(&Action::HugePage, target, small));
    assert_eq!((refused.applied, refused.failure), (0, Some(Failure::Refused)), "not wanted there");
}

#[test]
fn huge_pages_are_demoted() {
    if !root_or_skip("huge_pages_are_demoted") {
        return;
    }
    let Some(_alone) = Alone::with_swap(64) else { return };
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(4 * 512, "huge");
    process.touch(memory);
    assert_eq!(huge(&mut ops, target, memory), 4, "no huge pages to be had");
    let split = Work { range: part(memory, 0, 512), ..work(&Action::NoHugePage, target, memory) };
    let done = apply(&mut ops, split);
    assert_eq!(pages(done), [512, 512, 0], "{done:?}");
    assert_eq!((huge(&mut ops, target, memory), process.resident(memory)), (3, 2048));
    // Of the next two, one page in 16 is touched: that stays.
    let next = part(memory, 512, 1024);
    process.keep_touching(next, 16);
    let demote = Work { recheck: 100 * MS, ..work(&Action::NoHugePage, target, next) };
    let done = apply(&mut ops, demote);
    assert_eq!(pages(done), [1024, 1024, 0], "{done:?}");
    assert_eq!(huge(&mut ops, target, memory), 1);
    assert_eq!(process.resident(next), 64);
    assert_eq!(process.resident_each(next, 16), 64);
}

#[test]
fn filters_hold_back() {
    if !root_or_skip("filters_hold_back") {
        return;
    }
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    let small = process.map(300, "small");
    let huge = process.map(512, "huge");
    [small, huge].into_iter().for_each(|m| process.touch(m));
    let size = PageKind::HugePage { min: 2 << 20, max: 2 << 20 };
    let pages_of_small: Vec<u64> = (0..300).map(|i| part(small, i, 1).start).collect();
    let nodes = isotherm_linux::sys::page_nodes(process.pid(), &pages_of_small).unwrap();
    let mut done = |kind, matching, allow, range| {
        let filters = [PageFilter { kind, matching, allow }];
        pages(apply(&mut ops, Work { filters: &filters, ..work(&Action::Stat, target, range) }))
    };
    assert_eq!(done(size, true, false, small), [300, 300, 0]);
    assert_eq!(done(size, true, false, huge), [0, 0, 512]);
    assert_eq!(done(size, true, true, small), [0, 0, 300]);
    assert_eq!(done(size, false, false, huge), [512, 512, 0]);
    for node in [0u32, 1] {
        let there = nodes.iter().filter(|&&n| n == node.cast_signed()).count() as u64;
        let on = PageKind::Node(node);
        assert_eq!(done(on, true, true, small), [there, there, 300 - there]);
        assert_eq!(done(on, true, false, small), [300 - there, 300 - there, there]);
    }
    let mut cleared = Vec::new();
    ops.mappings(target, &mut Vec::new()).unwrap();
    Look::survey(&mut ops).unwrap().clear(target, &[small], &mut cleared).unwrap();
    process.touch(part(small, 0, 100));
    let filters = [PageFilter { kind: PageKind::Young, matching: true, allow: true }];
    let young = Work { filters: &filters, ..work(&Action::Stat, target, small) };
    assert_eq!(pages(apply(&mut ops, young)), [100, 100, 200]);
}

#[test]
fn memory_moves_to_nodes_that_are_there() {
    if !root_or_skip("memory_moves_to_nodes_that_are_there") {
        return;
    }
    let (mut process, mut ops, target) = attached();
    let memory = process.map(300, "small");
    process.touch(memory);
    let to = |node| {
        let all = [Destination { node, weight: 1 }];
        Action::MigrateCold(Destinations(all.into()))
    };
    let said = ops.supports(&to(900));
    assert!(matches!(&said, Support::No(why) if why.contains("no node 900")), "{said:?}");
    let node = isotherm_linux::sys::page_nodes(process.pid(), &[memory.start]).unwrap()[0];
    let here = to(node.unsigned_abs());
    assert_eq!(ops.supports(&here), Support::Yes);
    let nodes = isotherm_linux::numa::nodes("/".as_ref()).unwrap();
    for other in nodes.iter().filter(|n| n.node != node.unsigned_abs()) {
        let there = to(other.node);
        let done = apply(&mut ops, Work { recheck: MS, ..work(&there, target, memory) });
        assert_eq!(pages(done)[1], 300, "{done:?}");
        let back = apply(&mut ops, work(&here, target, memory));
        assert_eq!(pages(back)[1], 300, "{back:?}");
    }
    let done = apply(&mut ops, work(&here, target, memory));
    assert_eq!(pages(done), [0, 0, 300], "it lies there: {done:?}");
}

#[test]
fn what_makes_no_sense_is_an_error() {
    if !root_or_skip("what_makes_no_sense_is_an_error") {
        return;
    }
    let (mut process, mut ops, target) = attached();
    let memory = process.map(10, "small");
    process.touch(memory);
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
