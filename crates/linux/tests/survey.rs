//! Reading all accessed bits of a real process at once, and clearing them in long runs.

mod common;

use std::cell::RefCell;
use std::time::Duration;

use common::settings::{HUGE_PAGES, folios_of_64_kib, mthp};
use common::{
    about, attached, look, needs_root, obey as be_obedient, part, root, with_memory, young,
};
use isotherm_core::{
    AddrRange, BLOCK_SAMPLES, Block, Cleared, Cost, Liveness, Look, PAGE_SIZE, PageMask, Space,
    TargetId, Unknown, sample_pages,
};
use isotherm_linux::{Hold, Vaddr};
use proptest::prelude::*;

#[test]
fn obey() {
    be_obedient();
}

#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn survey(ops: &mut Vaddr, target: TargetId, ranges: &[AddrRange]) -> Vec<Block> {
    let mut out = Vec::new();
    ops.survey().unwrap().survey(target, ranges, &mut out).unwrap();
    out
}

#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn clear(ops: &mut Vaddr, target: TargetId, runs: &[AddrRange]) -> (Vec<Cleared>, Cost) {
    let mut out = Vec::new();
    let cost = ops.survey().unwrap().clear(target, runs, &mut out).unwrap();
    (out, cost)
}

fn sum(masks: impl Iterator<Item = PageMask>) -> u32 {
    masks.map(|m| m.count()).sum()
}

/// Resident and young pages over all blocks.
fn counts(blocks: &[Block]) -> (u32, u32) {
    (sum(blocks.iter().map(|b| b.resident)), sum(blocks.iter().map(|b| b.young)))
}

fn hidden(cleared: &[Cleared], why: Unknown) -> u32 {
    let of = cleared.iter().flat_map(|c| &c.hidden).filter(|(reason, _)| *reason == why);
    sum(of.map(|(_, pages)| *pages))
}

fn armed(cleared: &[Cleared]) -> u32 {
    sum(cleared.iter().map(|c| c.armed))
}

#[test]
fn observes_exactly_the_touched_pages() {
    needs_root!();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(3000, "small");
    process.touch(part(memory, 0, 2700));
    ops.mappings(target, &mut Vec::new()).unwrap();
    let (resident, touched) = counts(&survey(&mut ops, target, &[memory]));
    assert_eq!(resident, 2700, "absent pages are not resident");
    assert!(about(touched, 2700), "{touched}");
    let (cleared, cost) = clear(&mut ops, target, &[memory]);
    assert_eq!(armed(&cleared), 2700, "{cleared:?}");
    assert!((1..=3).contains(&cost.clears), "{cost:?}");
    let old = counts(&survey(&mut ops, target, &[memory]));
    assert_eq!(old, (2700, 0));
    process.touch(part(memory, 1123, 77));
    process.tell(&format!("read {} 3", part(memory, 500, 3).start));
    let blocks = survey(&mut ops, target, &[memory]);
    assert!(about(counts(&blocks).1, 80), "{:?}", counts(&blocks));
    assert!(cleared.iter().all(|c| blocks.iter().all(|b| c.cleared_at <= b.read_at)));
    assert!(blocks.is_sorted_by_key(|b| b.start));
    // Only the requested memory.
    let parts = [part(memory, 1100, 50), part(memory, 1190, 10)];
    let (resident, touched) = counts(&survey(&mut ops, target, &parts));
    assert_eq!(resident, 60);
    assert!(about(touched, 37), "{touched}");
    let (cleared, _) = clear(&mut ops, target, &parts[..1]);
    assert_eq!(armed(&cleared), 50);
    let (_, touched) = counts(&survey(&mut ops, target, &[memory]));
    assert!(about(touched, 53), "what was not asked for stays: {touched}");
    let windows = young(&look(&mut ops, target, memory, false));
    assert!(windows.abs_diff(touched) <= 1);
}

/// Each page belongs to one of the samples.
#[test]
fn a_probe_finds_the_young_pages_of_its_sample() {
    needs_root!();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(3000, "small");
    process.touch(part(memory, 0, 2700));
    ops.mappings(target, &mut Vec::new()).unwrap();
    for page in [520, 1123, 1124, 2699] {
        clear(&mut ops, target, &[memory]);
        let touched = part(memory, page, 1);
        process.tell(&format!("read {} 1", touched.start));
        let block = survey(&mut ops, target, &[touched]).pop().unwrap();
        let mut probe = |range, nth| ops.survey().unwrap().probe(target, &[range], nth).unwrap().0;
        for nth in 0..2 * BLOCK_SAMPLES {
            let is_in = !block.young.and(&sample_pages(nth)).is_empty();
            assert_eq!(probe(memory, nth), is_in, "page {page} in sample {nth}");
            assert!(!probe(part(memory, 0, page), nth), "only the requested memory");
        }
    }
}

#[test]
fn a_long_hot_stretch_needs_few_shootdowns() {
    needs_root!();
    let pages = 64 << 8;
    let (mut process, mut ops, target, memory) = with_memory(pages, "small");
    ops.mappings(target, &mut Vec::new()).unwrap();
    let (cleared, cost) = clear(&mut ops, target, &[memory]);
    assert_eq!(u64::from(armed(&cleared)), pages);
    assert!((4..=8).contains(&cost.clears), "{cost:?}");
    assert_eq!(counts(&survey(&mut ops, target, &[memory])).1, 0);
    let (_, cost) = clear(&mut ops, target, &[memory]);
    assert_eq!(cost.clears, 0, "nothing young");
    // Every 16th page: the gaps are bridged.
    for i in 0..pages / 16 {
        process.tell(&format!("read {} 1", part(memory, i * 16, 1).start));
    }
    let (_, cost) = clear(&mut ops, target, &[memory]);
    assert!((4..=8).contains(&cost.clears), "{cost:?}");
    assert_eq!(counts(&survey(&mut ops, target, &[memory])).1, 0);
}

#[test]
fn huge_pages_are_cleared_whole_and_never_split() {
    needs_root!();
    let _alone = HUGE_PAGES.lock();
    let pages = 32 * 512;
    let (mut process, mut ops, target, memory) = with_memory(pages, "huge");
    let before = process.rollup("AnonHugePages");
    assert!(before >= 32 * 2048 - 4 * 2048, "no huge pages to be had: {before} KiB");
    ops.mappings(target, &mut Vec::new()).unwrap();
    let huge = |ops: &mut Vaddr| survey(ops, target, &[memory]).iter().filter(|b| b.huge).count();
    let blocks = huge(&mut ops);
    assert!(blocks >= 28);
    let mut found = 0;
    for turn in 0..100 {
        // Runs that begin and end within huge pages, at all offsets.
        let run = part(memory, turn * 7, pages - turn * 13);
        let runs = [part(run, 0, 100), part(run, 300, pages - turn * 13 - 300)];
        let (cleared, cost) = clear(&mut ops, target, &runs);
        assert!(cost.clears <= 40, "{cost:?}");
        found += armed(&cleared);
        process.touch(part(memory, (turn * 777) % pages, 1));
    }
    assert!(u64::from(found) > 90 * pages, "{found}");
    assert_eq!(huge(&mut ops), blocks);
    // Old kernels leave out memory that NUMA balancing has made inaccessible for a moment.
    let balancing = std::fs::read_to_string("/proc/sys/kernel/numa_balancing");
    if balancing.map_or(true, |text| text.trim() == "0") {
        assert_eq!(process.rollup("AnonHugePages"), before);
    }
    clear(&mut ops, target, &[memory]);
    process.touch(part(memory, 777, 1));
    let (_, cost) = clear(&mut ops, target, &[memory]);
    assert!(cost.clears <= 1, "one huge page was touched: {cost:?}");
    assert_eq!(counts(&survey(&mut ops, target, &[memory])).1, 0);
    // A child maps them too: they are not cleared, and still not split.
    process.touch(memory);
    let child = process.tell("fork");
    let (cleared, _) = clear(&mut ops, target, &[memory]);
    assert!(u64::from(hidden(&cleared, Unknown::Shared)) >= pages - 4 * 512, "{cleared:?}");
    process.tell(&format!("reap {child}"));
    assert_eq!(huge(&mut ops), blocks);
}

#[test]
fn large_folios_are_cleared_in_long_runs_and_never_split() {
    needs_root!();
    let _alone = HUGE_PAGES.lock();
    let Some(_settings) = folios_of_64_kib() else { return };
    let (mut process, mut ops, target) = attached();
    let before_alloc = mthp("anon_fault_alloc").unwrap();
    let memory = process.map(256 * 16, "huge");
    process.touch(memory);
    assert!(mthp("anon_fault_alloc").unwrap() >= before_alloc + 250, "no folios of 64 KiB came");
    let splits = mthp("split").unwrap();
    ops.mappings(target, &mut Vec::new()).unwrap();
    let (cleared, cost) = clear(&mut ops, target, &[memory]);
    assert_eq!(armed(&cleared), 256 * 16);
    assert!(cost.clears <= 3, "folios are neighbours: {cost:?}");
    assert_eq!(counts(&survey(&mut ops, target, &[memory])).1, 0, "really cleared");
    for turn in 0..100 {
        process.touch(part(memory, turn * 31 % 4000, 3));
        process.touch(part(memory, turn * 57 % 4000, 20));
        // Runs that end in the middle of folios.
        clear(&mut ops, target, &[part(memory, turn, 1000), part(memory, 1200 + turn * 3, 1500)]);
    }
    assert_eq!(mthp("split").unwrap(), splits);
    // Half of a folio is unmapped. The rest cannot be cleared without splitting it, nor can its neighbours
    // that are in no folio.
    process.tell(&format!("unmap {} 8", part(memory, 16, 8).start));
    process.touch(part(memory, 0, 16));
    process.touch(part(memory, 24, 40));
    ops.mappings(target, &mut Vec::new()).unwrap();
    let (cleared, cost) = clear(&mut ops, target, &[part(memory, 0, 16), part(memory, 24, 40)]);
    assert_eq!(hidden(&cleared, Unknown::Partial), 8, "{cleared:?}");
    assert_eq!(armed(&cleared), 48);
    assert_eq!(cost.clears, 2, "{cost:?}");
    assert_eq!(mthp("split").unwrap(), splits);
}

#[test]
fn pages_mapped_more_than_once_are_hidden() {
    needs_root!();
    let (mut process, mut ops, target, memory) = with_memory(1024, "small");
    ops.mappings(target, &mut Vec::new()).unwrap();
    let child = process.tell("fork");
    process.touch(part(memory, 100, 64)); // copied: these are its own again
    let (cleared, _) = clear(&mut ops, target, &[memory]);
    assert_eq!(hidden(&cleared, Unknown::Shared), 960, "{cleared:?}");
    assert_eq!(armed(&cleared), 64);
    let young = counts(&survey(&mut ops, target, &[memory])).1;
    assert!(about(young, 960), "not cleared: {young}");
    process.tell(&format!("reap {child}"));
    let (cleared, _) = clear(&mut ops, target, &[memory]);
    assert_eq!((hidden(&cleared, Unknown::Shared), armed(&cleared)), (0, 1024));
    assert_eq!(counts(&survey(&mut ops, target, &[memory])).1, 0);
}

#[test]
fn locked_memory_is_hidden() {
    needs_root!();
    let (_process, mut ops, target, memory) = with_memory(64, "locked");
    ops.mappings(target, &mut Vec::new()).unwrap();
    let (cleared, cost) = clear(&mut ops, target, &[memory]);
    assert_eq!((hidden(&cleared, Unknown::Mlocked), armed(&cleared), cost.clears), (64, 0, 0));
}

#[test]
fn zero_pages_are_not_resident() {
    needs_root!();
    let _alone = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    for kind in ["small", "huge"] {
        let memory = process.map(2048, kind);
        process.tell(&format!("read {} 2048", memory.start));
        process.touch(part(memory, 1030, 1));
        ops.mappings(target, &mut Vec::new()).unwrap();
        let written =
            if kind == "small" { 1 } else { counts(&survey(&mut ops, target, &[memory])).0 };
        assert!([1, 512].contains(&written), "{written} of {kind} pages");
        let blocks = survey(&mut ops, target, &[memory]);
        assert_eq!((blocks.len(), counts(&blocks).0), (1, written), "{kind}");
        let (cleared, _) = clear(&mut ops, target, &[memory]);
        assert_eq!(armed(&cleared), written, "{kind}: {cleared:?}");
    }
}

#[test]
fn a_failed_range_does_not_stop_the_others() {
    needs_root!();
    let (mut process, mut ops, target, memory) = with_memory(20 * 512, "small");
    ops.mappings(target, &mut Vec::new()).unwrap();
    // Unknown by now: a hole, and a locked part.
    process.tell(&format!("unmap {} 10", part(memory, 3000, 10).start));
    process.tell(&format!("lock {} 10", part(memory, 7000, 10).start));
    let (cleared, _) = clear(&mut ops, target, &[memory]);
    let (armed, lost) = (armed(&cleared), hidden(&cleared, Unknown::Unseen));
    assert_eq!(armed + lost, 20 * 512 - 10, "{cleared:?}");
    assert!((10..=2 * 512).contains(&lost), "a block each: {lost}");
    let still_young = counts(&survey(&mut ops, target, &[memory])).1;
    assert!((10..=lost).contains(&still_young), "{still_young} of {lost}");
}

#[test]
fn exec_and_end_leave_nothing() {
    needs_root!();
    let (mut process, mut ops, target, memory) = with_memory(64, "small");
    ops.mappings(target, &mut Vec::new()).unwrap();
    process.tell("exec");
    assert!(survey(&mut ops, target, &[memory]).is_empty());
    assert!(clear(&mut ops, target, &[memory]).0.is_empty());
    assert_eq!(ops.mappings(target, &mut Vec::new()), Ok(Liveness::Replaced));
    let memory = process.map(64, "small");
    process.touch(memory);
    ops.mappings(target, &mut Vec::new()).unwrap();
    assert_eq!(armed(&clear(&mut ops, target, &[memory]).0), 64, "the new one is seen");
    assert!(Look::survey(&mut ops).unwrap().pressure(target).is_some());
    process.kill();
    assert!(survey(&mut ops, target, &[memory]).is_empty());
    assert!(clear(&mut ops, target, &[memory]).0.is_empty());
    assert!(Look::survey(&mut ops).unwrap().pressure(target).is_none());
    ops.detach(target);
    let mut none = Vec::new();
    assert!(Look::survey(&mut ops).unwrap().survey(target, &[memory], &mut none).is_err());
}

#[test]
fn a_huge_reservation_costs_next_to_nothing() {
    needs_root!();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(20 << 28, "reserved");
    let places = [0, 12345, (3 << 28) + 7, (20 << 28) - 1];
    places.iter().for_each(|&page| process.touch(part(memory, page, 1)));
    ops.mappings(target, &mut Vec::new()).unwrap();
    let mut blocks = Vec::new();
    let cost = Look::survey(&mut ops).unwrap().survey(target, &[memory], &mut blocks).unwrap();
    assert_eq!((blocks.len(), counts(&blocks)), (4, (4, 4)));
    assert_eq!(cost.pages, 4 * 512, "entries read");
    let (cleared, cost) = clear(&mut ops, target, &[memory]);
    assert_eq!((armed(&cleared), cost.clears), (4, 4), "too far apart to be cleared in one go");
}

#[test]
fn the_cost_to_the_target_is_reported() {
    needs_root!();
    let (_process, mut ops, target, memory) = with_memory(2048, "small");
    ops.mappings(target, &mut Vec::new()).unwrap();
    let (_, first) = clear(&mut ops, target, &[memory]);
    assert!(first.lost > Duration::ZERO, "{first:?}");
    let (_, nothing) = clear(&mut ops, target, &[memory]);
    assert_eq!(nothing.lost, Duration::ZERO, "{nothing:?}");
}

/// Resident and young pages of `range`, by windows of 64 KiB.
fn by_windows(ops: &mut Vaddr, target: TargetId, range: AddrRange) -> (u32, u32) {
    let seen = look(ops, target, range, false);
    (seen.iter().map(|s| s.present).sum(), young(&seen))
}

/// For any ranges, in memory of all kinds, blocks and windows give the same result.
#[test]
fn any_ranges_are_as_windows_show_them() {
    needs_root!();
    let _alone = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    let areas =
        [process.map(5000, "small"), process.map(4 * 512, "huge"), process.map(3000, "small")];
    // A share of each: touched, touched and cleared, read (zero pages), never touched.
    for (i, area) in areas.iter().enumerate() {
        let pages = area.len() / PAGE_SIZE;
        process.touch(part(*area, 0, pages / 3));
        ops.mappings(target, &mut Vec::new()).unwrap();
        clear(&mut ops, target, &[part(*area, 0, pages / 3)]);
        process.tell(&format!("read {} {}", part(*area, pages / 2, 9).start, pages / 4));
        for k in 0..40 {
            process.touch(part(*area, (k * 97 + i as u64 * 13) % (pages / 2), k % 7 + 1));
        }
    }
    ops.mappings(target, &mut Vec::new()).unwrap();
    let ops = RefCell::new(ops);
    let ranges = prop::collection::vec((0usize..3, 0u64..3000, 1u64..2000), 1..6);
    proptest!(ProptestConfig::with_cases(200), |(picks in ranges)| {
        let mut asked: Vec<AddrRange> = picks
            .iter()
            .map(|&(area, first, pages)| (areas[area], first, pages))
            .filter_map(|(area, first, pages)| part(area, first, pages).intersect(&area))
            .collect();
        asked.sort_unstable();
        // Disjoint ranges: of two that overlap, only the first.
        asked.dedup_by(|b, a| b.start < a.end);
        let ops = &mut *ops.borrow_mut();
        let blocks = survey(ops, target, &asked);
        let windows: Vec<_> = asked.iter().map(|r| by_windows(ops, target, *r)).collect();
        let resident: u32 = windows.iter().map(|w| w.0).sum();
        let touched: u32 = windows.iter().map(|w| w.1).sum();
        let found = counts(&blocks);
        prop_assert_eq!(found.0, resident);
        // The host may age a page, or a huge page, in between.
        prop_assert!(found.1 == touched || found.1.abs_diff(touched) <= 1 + touched / 200
            || found.1.abs_diff(touched) == 512, "{} young, {touched} by windows", found.1);
        prop_assert!(blocks.iter().all(|b| b.young.without(&b.resident).is_empty()));
        prop_assert!(blocks.is_sorted_by_key(|b| b.start));
    });
}
