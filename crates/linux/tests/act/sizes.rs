//! Huge pages that are made and split, and filters.

use isotherm_core::{Action, Budget, Failure, Look, PAGE_SIZE, PageFilter, PageKind, Space, Work};

use crate::common::root::has_or_skip;
use crate::common::settings::{HUGE_PAGES, Setting};
use crate::common::{attached, needs_root, part};
use crate::{ALL, MS, apply, huge, pages, with_memory, work};

#[test]
fn huge_pages_are_made_of_used_memory() {
    needs_root!();
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    // Five blocks of small pages, in memory that may have huge ones.
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
    // The fewest touched pages that suffice. They are touched again if a monitor of the host has cleared one meanwhile.
    let mut done = apply(&mut ops, work(&Action::HugePage, target, blocks));
    for _ in 0..5 {
        if done.tried == 0 {
            process.touch(block(2, 448));
            done = apply(&mut ops, work(&Action::HugePage, target, blocks));
        }
    }
    assert_eq!(pages(done), [512, 512, 4 * 512], "{done:?}");
    assert_eq!(huge(&mut ops, target, blocks), 2);
    // Touches before the wait count as well: 440 pages, and 72 others.
    process.touch(block(1, 512));
    let waited = Work { recheck: MS, ..work(&Action::HugePage, target, block(1, 512)) };
    assert_eq!(pages(apply(&mut ops, waited)), [512, 512, 0]);
    let small = process.map(2048, "small");
    process.touch(small);
    let refused = apply(&mut ops, work(&Action::HugePage, target, small));
    assert_eq!((refused.applied, refused.failure), (0, Some(Failure::Refused)), "not wanted there");
}

#[test]
fn huge_pages_are_split_and_stay_resident() {
    needs_root!();
    let _huge = HUGE_PAGES.lock();
    let (process, mut ops, target, memory) = with_memory(4 * 512, "huge");
    assert_eq!(huge(&mut ops, target, memory), 4, "no huge pages to be had");
    let first = part(memory, 0, 512);
    let one = Work { range: first, recheck: MS, ..work(&Action::NoHugePage, target, memory) };
    let done = apply(&mut ops, one);
    assert_eq!(pages(done), [512, 512, 0], "{done:?}");
    assert_eq!((huge(&mut ops, target, memory), process.resident(memory)), (3, 2048));
    let budget = Budget { bytes: 2 << 20, ..ALL };
    let next = Work { budget, ..work(&Action::NoHugePage, target, memory) };
    assert_eq!(pages(apply(&mut ops, next))[..2], [512, 512]);
    assert_eq!(huge(&mut ops, target, memory), 2);
}

/// Major and minor number.
fn kernel_version() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[test]
fn what_a_huge_page_wastes_is_free_after_its_split() {
    needs_root!();
    let frees = kernel_version().is_some_and(|version| version >= (6, 12));
    let test = "what_a_huge_page_wastes_is_free_after_its_split";
    if !has_or_skip(
        frees,
        test,
        "Linux 6.12, which frees the pages of zeros of a huge page that it splits",
    ) {
        return;
    }
    let _huge = HUGE_PAGES.lock();
    let (mut process, mut ops, target) = attached();
    let memory = process.map(2 * 512, "huge");
    let rollup = format!("/proc/{}/smaps_rollup", process.pid());
    let anonymous = || {
        let smaps = std::fs::read_to_string(&rollup).unwrap();
        let kib = smaps.lines().find_map(|l| l.strip_prefix("Anonymous:")?.strip_suffix("kB"));
        kib.unwrap().trim().parse::<u64>().unwrap() / 4
    };
    let before = anonymous();
    [part(memory, 8, 4), part(memory, 512, 1)].into_iter().for_each(|used| process.touch(used));
    assert_eq!(huge(&mut ops, target, memory), 2, "no huge pages to be had");
    let done = apply(&mut ops, work(&Action::NoHugePage, target, memory));
    assert_eq!(pages(done), [1024, 1024, 0], "{done:?}");
    // The zero page is mapped in their place, and does not count.
    let used = anonymous() - before;
    assert!((5..=10).contains(&used), "{used} pages");
}

#[test]
fn filters_hold_back() {
    needs_root!();
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
