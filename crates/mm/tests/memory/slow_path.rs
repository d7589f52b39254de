//! Behaviour when memory runs short.

use isotherm_mm::{AllocRequest, Fair, Layout, ListKind, LruType, ReclaimStats, ZoneKind};

use super::{Pages, file, memory};

fn small() -> Layout {
    Layout::single(1, &[(ZoneKind::Dma32, 10_000), (ZoneKind::Normal, 20_000)])
}

#[test]
fn kswapd_is_woken_at_low_and_fills_up_to_high() {
    let mut memory = memory(&small(), Fair::Baseline.rules());
    let mut pages = Pages::default();
    while !memory.is_kswapd_awake(0) {
        pages.allocate(&mut memory, file(0)).unwrap();
    }
    assert!(memory.zones().iter().all(|z| z.free.exact() <= z.watermarks.low + z.reserve[2]));
    assert_eq!((memory.stats().wakeups, memory.stats().stalls), (1, 0));
    let work = memory.run_kswapd(0, u64::MAX, &mut pages);
    assert!(work.reclaimed > 0 && !memory.is_kswapd_awake(0));
    assert!(memory.zones().iter().all(|z| z.free.exact() > z.watermarks.high));
}

#[test]
fn without_kswapd_the_allocating_task_reclaims() {
    let mut memory = memory(&small(), Fair::Baseline.rules());
    let mut pages = Pages::default();
    for _ in 0..50_000 {
        pages.allocate(&mut memory, file(0)).unwrap();
    }
    assert!(memory.stats().stalls > 0);
    let scanned: u64 = memory.zones().iter().map(|z| z.stats.scanned_direct).sum();
    assert!(scanned >= 20_000, "{scanned}");
    assert!(memory.zones().iter().all(|z| z.stats.scanned_kswapd == 0));
}

#[test]
fn unreclaimable_memory_ends_in_a_failed_allocation() {
    let mut memory = memory(&small(), Fair::Landed.rules());
    let mut pages = Pages::default();
    let keep = AllocRequest { kind: None, ..file(0) };
    while pages.allocate(&mut memory, keep).is_some() {}
    let mut others =
        memory.zones().iter().map(|z| z.free.exact() - z.watermarks.min - z.reserve[2]);
    assert!(others.all(|above| above <= 0));
    assert_eq!(memory.stats().failures, 1);
    // And kswapd gives up instead of running for ever.
    assert_eq!(memory.run_kswapd(0, u64::MAX, &mut pages), ReclaimStats::default());
    assert!(!memory.is_kswapd_awake(0));
}

#[test]
fn a_page_used_twice_outlives_those_used_once() {
    let mut memory = memory(&small(), Fair::Landed.rules());
    let mut pages = Pages::default();
    let dear = pages.allocate(&mut memory, file(0)).unwrap();
    (0..2).for_each(|_| memory.mark_accessed(dear));
    assert_eq!(memory.list_of(dear), ListKind::ActiveFile);
    for _ in 0..60_000 {
        let frame = pages.allocate(&mut memory, file(0)).unwrap();
        memory.mark_accessed(frame);
        memory.run_kswapd(0, 8, &mut pages);
    }
    assert_eq!(pages.held[0], Some(dear));
    assert_eq!(pages.held[1], None);
}

#[test]
fn pages_of_processes_stay_while_there_is_no_swap() {
    let mut memory = memory(&small(), Fair::Landed.rules());
    let mut pages = Pages::default();
    let anon = AllocRequest { kind: Some(LruType::Anon), ..file(0) };
    for _ in 0..10_000 {
        let frame = pages.allocate(&mut memory, anon).unwrap();
        memory.set_mapped(frame, true);
    }
    for _ in 0..60_000 {
        pages.allocate(&mut memory, file(0)).unwrap();
        memory.run_kswapd(0, 8, &mut pages);
    }
    assert!(pages.held[..10_000].iter().all(Option::is_some));
    memory.set_swap(true);
    while pages.held[..10_000].iter().all(Option::is_some) {
        assert!(pages.allocate(&mut memory, anon).is_some());
        memory.run_kswapd(0, 8, &mut pages);
    }
}

#[test]
fn pages_to_be_written_wait_and_are_then_the_first_to_go() {
    let mut memory = memory(&small(), Fair::Landed.rules());
    let mut pages = Pages::default();
    let first = pages.allocate(&mut memory, file(0)).unwrap();
    memory.set_dirty(first);
    for _ in 0..60_000 {
        pages.allocate(&mut memory, file(0)).unwrap();
        memory.run_kswapd(0, 8, &mut pages);
    }
    assert_eq!(pages.held[0], Some(first));
    memory.set_clean(first);
    let zone = memory.zone_of(first);
    assert_eq!(memory.on_list(zone, ListKind::InactiveFile).last(), Some(first));
}

#[test]
fn a_zone_holds_only_its_share_of_dirty_pages() {
    let mut memory = memory(&small(), Fair::Off.rules());
    let mut pages = Pages::default();
    for _ in 0..4_200 {
        let frame = pages.allocate(&mut memory, AllocRequest { write: true, ..file(0) }).unwrap();
        memory.set_dirty(frame);
    }
    let normal = &memory.zones()[1];
    assert!(normal.free.exact() > normal.watermarks.high, "there is room yet");
    assert!(normal.dirty < normal.managed / 5 + 2, "{}", normal.dirty);
    assert!(memory.zones()[0].dirty > 0);
}
