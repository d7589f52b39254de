//! A process that ends, execs or unmaps memory during an action, and one that checks each of its words.

use isotherm_core::{Action, AddrRange, Failure, Liveness, PAGE_SIZE, Space, TargetId, Work};

use crate::common::swap::Alone;
use crate::common::{attached, needs_root, part};
use crate::{MS, apply, with_memory, work};

/// A work with a short second look.
fn looked(action: &Action, target: TargetId, range: AddrRange) -> Work<'_> {
    Work { recheck: MS, ..work(action, target, range) }
}

const ACTIONS: [Action; 8] = [
    Action::PageOut,
    Action::Cold,
    Action::WillNeed,
    Action::HugePage,
    Action::NoHugePage,
    Action::LruPrio,
    Action::LruDeprio,
    Action::Stat,
];

#[test]
fn ended_or_replaced_targets_are_gone() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(64) else { return };
    let (mut process, mut ops, target, memory) = with_memory(1000, "small");
    assert_eq!(apply(&mut ops, looked(&Action::Stat, target, memory)).applied, memory.len());
    process.tell("exec");
    for action in ACTIONS {
        let done = apply(&mut ops, looked(&action, target, memory));
        assert_eq!((done.applied, done.tried), (0, 0), "{} after exec: {done:?}", action.name());
    }
    assert_eq!(ops.mappings(target, &mut Vec::new()), Ok(Liveness::Replaced), "still to be told");
    process.kill();
    for action in ACTIONS {
        let done = apply(&mut ops, looked(&action, target, memory));
        assert_eq!((done.applied, done.tried), (0, 0), "{} at the end: {done:?}", action.name());
        assert!([None, Some(Failure::Gone)].contains(&done.failure), "{done:?}");
    }
}

#[test]
fn a_target_killed_during_a_work_is_no_error() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(256) else { return };
    for delay in [0, 1, 5, 20] {
        let (mut process, mut ops, target, memory) = with_memory(30_000, "small");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay * MS);
            process.kill();
        });
        let done = apply(&mut ops, looked(&Action::PageOut, target, memory));
        killer.join().unwrap();
        assert!(done.applied <= memory.len());
        assert!([None, Some(Failure::Gone)].contains(&done.failure), "{done:?}");
        let after = apply(&mut ops, looked(&Action::PageOut, target, memory));
        assert_eq!(after.applied, 0);
    }
}

#[test]
fn unmapping_during_a_work_affects_nothing_else() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(256) else { return };
    let (mut process, mut ops, target, memory) = with_memory(30_000, "small");
    let holes = std::thread::spawn(move || {
        (0..300).for_each(|i| {
            process.tell(&format!("unmap {} 10", part(memory, i * 100 + 7, 10).start));
        });
        process
    });
    let done = apply(&mut ops, looked(&Action::PageOut, target, memory));
    let mut process = holes.join().unwrap();
    assert!(done.tried <= memory.len() && done.applied <= done.tried, "{done:?}");
    let rest = apply(&mut ops, looked(&Action::PageOut, target, memory));
    assert_eq!(rest.failure, None);
    assert_eq!(process.resident(memory), 0);
    let whole = (0..300).map(|i| part(memory, i * 100 + 17, 83));
    whole.for_each(|w| process.touch(w));
    assert_eq!(process.resident(memory), 300 * 83);
}

/// Ten million words are checked, round after round, while all cold memory is paged out at once.
#[test]
fn no_word_is_lost() {
    needs_root!();
    const PAGES: u64 = 4000;
    const ROUNDS: u64 = 10_000_000 / (PAGES * 512) + 1;
    let Some(_alone) = Alone::with_swap(128) else { return };
    let (mut process, mut ops, target) = attached();
    let memory = process.map(PAGES, "small");
    process.tell(&format!("words {} {PAGES} {ROUNDS}", memory.start));
    let mut out = 0;
    let wrong = loop {
        out += apply(&mut ops, looked(&Action::PageOut, target, memory)).applied / PAGE_SIZE;
        match process.tell("wrong-words") {
            0 => {}
            wrong => break wrong - 1,
        }
    };
    assert_eq!(wrong, 0);
    assert!(out >= 100, "{out} pages were paged out meanwhile");
}
