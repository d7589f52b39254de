//! Room in swap, and the way back.

use isotherm_core::{Act, Action, BLOCK_SIZE, Failure, Look, PAGE_SIZE, Support, align_down};

use crate::common::swap::Alone;
use crate::common::{Obedient, attached, needs_root, part};
use crate::{MS, apply, pages, with_memory, work};

#[test]
fn without_swap_it_is_said_and_nothing_is_tried_in_vain() {
    needs_root!();
    let Some(_alone) = Alone::without_swap() else { return };
    let (process, mut ops, target, memory) = with_memory(3000, "small");
    let said = ops.supports(&Action::PageOut);
    assert!(matches!(&said, Support::NotNow(why) if why.contains("no swap")), "{said:?}");
    let done = apply(&mut ops, work(&Action::PageOut, target, memory));
    assert_eq!((done.applied, done.failure), (0, Some(Failure::NoRoom)));
    assert!(done.tried <= 64 * PAGE_SIZE, "it stops at once: {done:?}");
    assert_eq!(process.resident(memory), 3000);
}

#[test]
fn full_swap_is_no_room() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(8) else { return };
    let (process, mut ops, target, memory) = with_memory(4096, "small");
    let done = apply(&mut ops, work(&Action::PageOut, target, memory));
    assert_eq!(done.failure, Some(Failure::NoRoom), "{done:?}");
    let out = done.applied / PAGE_SIZE;
    assert!((1024..=2048).contains(&out), "{done:?}");
    assert_eq!(process.resident(memory), 4096 - out);
    let said = ops.supports(&Action::PageOut);
    assert!(matches!(&said, Support::NotNow(why) if why.contains("full")), "{said:?}");
    let again = apply(&mut ops, work(&Action::PageOut, target, memory));
    assert!(again.applied == 0 && again.tried <= 64 * PAGE_SIZE, "no spinning: {again:?}");
}

#[test]
fn paged_out_memory_is_read_back() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(1000, "small");
    process.touch(part(memory, 0, 600));
    apply(&mut ops, work(&Action::PageOut, target, part(memory, 0, 300)));
    let faults = |p: &Obedient| p.major_faults(u64::from(p.pid().unsigned_abs()));
    let back = apply(&mut ops, work(&Action::WillNeed, target, memory));
    assert_eq!(pages(back), [300, 300, 700], "{back:?}");
    assert_eq!(process.resident(memory), 600, "what is applied is back");
    let again = apply(&mut ops, work(&Action::WillNeed, target, memory));
    assert_eq!(pages(again), [0, 0, 1000], "{again:?}");
    let thread = process.keep_touching(memory, 1);
    while process.resident(memory) < 600 {
        std::thread::sleep(MS);
    }
    let waited = process.major_faults(thread) + faults(&process);
    assert!(waited <= 30, "all had to wait for swap otherwise: {waited}");
}

/// Idle ages are kept for these pages, and dropped for pages that were freed or never touched.
#[test]
fn a_survey_says_which_pages_are_in_swap() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(2000, "small");
    process.touch(part(memory, 0, 1500));
    apply(&mut ops, work(&Action::PageOut, target, part(memory, 300, 900)));
    let first = align_down(memory.start, BLOCK_SIZE);
    let blocks = (first..memory.end).step_by(usize::try_from(BLOCK_SIZE).unwrap());
    let swapped: u32 = blocks
        .map(|block| {
            let pages = ops.survey().unwrap().swapped(target, block).unwrap().unwrap_or_default();
            let page = |n: usize| block + n as u64 * PAGE_SIZE;
            let out = part(memory, 300, 900);
            assert!(pages.iter().all(|n| out.contains(page(n))), "{pages:?}");
            pages.count()
        })
        .sum();
    assert_eq!(swapped, 900);
}
