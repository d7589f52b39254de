//! Pages that are touched during the wait stay.

use std::time::Duration;

use isotherm_core::{Act, Action, Look, PAGE_SIZE, PageFilter, PageKind, Work};

use crate::common::swap::Alone;
use crate::common::{attached, needs_root, part};
use crate::{MS, apply, pages, with_memory, work};

const SECOND: Duration = Duration::from_secs(1);

/// A cold region of which a tenth is hot loses none of that tenth.
#[test]
fn hot_pages_of_a_cold_region_stay() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(256) else { return };
    let (mut process, mut ops, target, memory) = with_memory(16_000, "small");
    let thread = process.keep_touching(memory, 10);
    let before = process.major_faults(thread);
    let mut out = 0;
    for _ in 0..10 {
        let done =
            apply(&mut ops, Work { recheck: 100 * MS, ..work(&Action::PageOut, target, memory) });
        out += done.applied;
        assert_eq!(process.resident_each(memory, 10), 1600);
        // Reads everything back, so that there is cold memory again.
        process.touch(memory);
    }
    assert_eq!(process.major_faults(thread), before);
    let out = out / PAGE_SIZE;
    assert!(out >= 10 * 14_400 * 9 / 10, "next to all that is cold went: {out} pages");
}

/// Another program has cleared accessed bits, and accesses through a cached translation do not set them.
#[test]
fn pages_in_the_tlb_stay() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    // Other memory is in use all the time.
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

/// Another program clears accessed bits during the wait, as kswapd may.
#[test]
fn pages_cleared_by_others_count_as_touched() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target, memory) = with_memory(1000, "small");
    let meddler = std::thread::spawn(move || {
        for _ in 0..15 {
            process.tell(&format!("read {} 100", part(memory, 300, 100).start));
            std::thread::sleep(20 * MS);
        }
        std::thread::sleep(300 * MS);
        std::fs::write(format!("/proc/{}/clear_refs", process.pid()), "1").unwrap();
        process
    });
    let recheck = 800 * MS;
    let done = apply(&mut ops, Work { recheck, ..work(&Action::PageOut, target, memory) });
    let process = meddler.join().unwrap();
    // The host ages a page now and then, and so loses its touch.
    let [tried, applied, passed] = pages(done);
    assert!((900..=905).contains(&applied), "{done:?}");
    assert_eq!((tried, applied + passed), (applied, 1000), "{done:?}");
    assert_eq!(process.resident(part(memory, 300, 100)), 1000 - applied);
}

/// A clear by another program does not change what is known of the pages.
#[test]
fn recently_touched_pages_stay() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target, memory) = with_memory(1000, "small");
    let kind = PageKind::Touched { within: 3 * SECOND };
    let filters = &[PageFilter { kind, matching: true, allow: false }];
    let mut page_out = || {
        let recheck = MS;
        apply(&mut ops, Work { recheck, filters, ..work(&Action::PageOut, target, memory) })
    };
    assert_eq!(pages(page_out()), [0, 0, 1000], "nothing is known before somebody asks");
    std::thread::sleep(2 * SECOND);
    let read = part(memory, 300, 100);
    process.tell(&format!("read {} 100", read.start));
    assert_eq!(pages(page_out()), [0, 0, 1000]);
    std::thread::sleep(2 * SECOND);
    assert_eq!(pages(page_out()), [900, 900, 100], "its bits were cleared 2 s ago");
    assert_eq!(process.resident(read), 100);
    std::thread::sleep(3 * SECOND);
    assert_eq!(pages(page_out())[1], 100);
}

/// Another program clears bits between two reads, as reclaim and DAMON do.
#[test]
fn pages_cleared_by_others_before_the_work_count_as_touched() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target, memory) = with_memory(1000, "small");
    let kind = PageKind::Touched { within: 3 * SECOND };
    let filters = &[PageFilter { kind, matching: true, allow: false }];
    let page_out =
        |ops: &mut _| apply(ops, Work { filters, ..work(&Action::PageOut, target, memory) });
    assert_eq!(pages(page_out(&mut ops))[1], 0, "nothing is known before somebody asks");
    ops.survey().unwrap().clear(target, &[memory], &mut Vec::new()).unwrap();
    std::thread::sleep(5 * SECOND);
    let read = part(memory, 300, 100);
    process.tell(&format!("read {} 100", read.start));
    ops.survey().unwrap().survey(target, &[memory], &mut Vec::new()).unwrap();
    std::fs::write(format!("/proc/{}/clear_refs", process.pid()), "1").unwrap();
    assert_eq!(pages(page_out(&mut ops)), [900, 900, 100], "not read again since");
    ops.survey().unwrap().survey(target, &[memory], &mut Vec::new()).unwrap();
    assert_eq!(pages(page_out(&mut ops))[1], 0);
    assert_eq!(process.resident(read), 100);
}

/// The monitor clears bits, so the action only reads them, and then the folios of idle memory.
#[test]
fn idle_pages_between_touched_ones_are_found() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    for (kind, all, idle) in [("small", 1000, 1000 - 104), ("huge", 1536, 512)] {
        let (mut process, mut ops, target, memory) = with_memory(all, kind);
        let filter = PageKind::Touched { within: 3 * SECOND };
        let filters = &[PageFilter { kind: filter, matching: true, allow: false }];
        let page_out = |ops: &mut _| {
            let recheck = 20 * MS;
            apply(ops, Work { recheck, filters, ..work(&Action::PageOut, target, memory) })
        };
        assert_eq!(pages(page_out(&mut ops))[1], 0, "nothing is known before somebody asks");
        ops.survey().unwrap().clear(target, &[memory], &mut Vec::new()).unwrap();
        std::thread::sleep(4 * SECOND);
        let mut read = |first, count| {
            process.tell(&format!("read {} {count}", part(memory, first, count).start));
        };
        [500, 502, 504].into_iter().for_each(|page| read(page, 1));
        read(300, 100);
        read(all - 1, 1);
        let last = part(memory, all - 1, 1);
        ops.survey().unwrap().clear(target, &[last], &mut Vec::new()).unwrap();
        let done = page_out(&mut ops);
        let [_, applied, passed] = pages(done);
        // The host ages a page now and then.
        assert!((idle..=idle + 5).contains(&applied), "{kind}: {done:?}");
        assert_eq!(applied + passed, all, "{kind}: {done:?}");
        assert_eq!(process.resident(memory), all - applied, "{kind}");
    }
}

/// Another process has the target's CPU for much longer than the wait.
#[test]
fn a_thread_that_could_not_run_extends_the_wait() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target, memory) = with_memory(1000, "small");
    process.keep_touching(memory, 10);
    let cpus =
        rustix::thread::sched_getaffinity(rustix::process::Pid::from_raw(process.pid())).unwrap();
    // This thread uses another CPU, if there is one.
    let mut ours = rustix::thread::sched_getaffinity(None).unwrap();
    let taken: Vec<usize> = (0..1024).filter(|&cpu| cpus.is_set(cpu)).collect();
    taken.iter().for_each(|&cpu| ours.unset(cpu));
    let _ = rustix::thread::sched_setaffinity(None, &ours);
    let (began, has_begun) = std::sync::mpsc::channel();
    let hog = std::thread::spawn(move || {
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        let highest = libc::sched_param { sched_priority: 1 };
        // SAFETY: the call reads the parameter, and changes only this thread.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const highest) };
        assert_eq!(set, 0, "not of the highest: {}", std::io::Error::last_os_error());
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
fn several_works_wait_once() {
    needs_root!();
    let (_process, mut ops, target, memory) = with_memory(1000, "small");
    let cold = Work { recheck: 50 * MS, ..work(&Action::Cold, target, memory) };
    let parts = (0..100).map(|i| Work { range: part(memory, i * 10, 10), ..cold.clone() });
    let works: Vec<Work<'_>> = parts.collect();
    let (mut out, begin) = (Vec::new(), std::time::Instant::now());
    ops.apply(&works, &mut out).unwrap();
    let took = begin.elapsed();
    assert!(took >= 50 * MS && took < 1000 * MS, "{took:?}");
    assert!(out.len() == 100 && out.iter().all(|a| pages(*a) == [10, 10, 0]), "{out:?}");
}
