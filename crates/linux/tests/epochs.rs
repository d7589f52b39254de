//! Memory that advice does not clear, observed in epochs; and all memory, without any advice.

mod common;

use std::time::{Duration, Instant};

use common::root::{self, root_or_skip};
use common::{Obedient, look, needs_root, obey as be_obedient, part};
use isotherm_core::{AddrRange, Ask, Look, Nanos, Seen, Space, TargetId, Unknown};
use isotherm_linux::{Clearing, Hold, Vaddr, WalkError, WalkMethod};

#[test]
fn obey() {
    be_obedient();
}

/// Several epochs, also of those without a flush.
const TIMEOUT: Duration = Duration::from_secs(20);

fn sum(seen: &[Seen], count: impl Fn(&Seen) -> u32) -> u32 {
    seen.iter().map(count).sum()
}

fn touched(seen: &[Seen]) -> u32 {
    sum(seen, |s| s.young + s.later)
}

fn shared(seen: &[Seen]) -> u32 {
    sum(seen, |s| s.unknown.0[Unknown::Shared.index()])
}

/// Looks repeatedly while `touch` is called, until the answers are from an epoch that began after the first
/// one.
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn watch(
    ops: &mut Vaddr,
    targets: &[TargetId],
    range: AddrRange,
    mut touch: impl FnMut(),
) -> Vec<Seen> {
    for &target in targets {
        ops.mappings(target, &mut Vec::new()).unwrap();
    }
    let begin = Instant::now();
    let mut epochs = std::collections::BTreeSet::new();
    let mut seen = Vec::new();
    while epochs.len() < 2 && begin.elapsed() < TIMEOUT {
        touch();
        for &target in targets.iter().rev() {
            seen = look(ops, target, range, false);
        }
        epochs.extend(seen.iter().filter_map(|s| s.since));
        std::thread::sleep(Duration::from_millis(20));
    }
    seen
}

/// 512 pages of a process that then forks: the pages, and the pid of the child.
fn forked(process: &mut Obedient) -> (AddrRange, i32) {
    let memory = process.map(512, "small");
    process.touch(memory);
    let child = process.tell("fork");
    (memory, i32::try_from(child).unwrap_or(0))
}

/// The host's kdamond may age a page or two.
fn about(found: u32, truth: u32) -> bool {
    found.abs_diff(truth) <= 1 + truth / 100
}

/// With soft-dirty bits, a flush is not certain. Then private memory that is locked or shared with a child is
/// unknown.
fn private_is_seen() -> bool {
    let root = std::path::Path::new("/");
    isotherm_linux::proc::has_soft_dirty(root).is_ok_and(|has| !has)
}

#[test]
fn memory_shared_with_a_child_is_observed_if_both_are_watched() {
    needs_root!();
    let mut process = Obedient::start();
    let (memory, child) = forked(&mut process);
    let mut ops = Vaddr::new().unwrap();
    let targets = [process.pid(), child].map(|pid| ops.attach(pid).unwrap());
    let hot = part(memory, 100, 64);
    let read = format!("read {} 64", hot.start);
    let seen = watch(&mut ops, &targets, memory, || {
        process.tell(&read);
    });
    if !private_is_seen() {
        assert_eq!((shared(&seen), touched(&seen)), (512, 0), "{seen:?}");
        return;
    }
    assert_eq!(shared(&seen), 0, "all who map it are watched: {seen:?}");
    assert_eq!(sum(&seen, |s| s.present), 512);
    assert!(about(touched(&seen), 64), "{seen:?}");
    assert!(seen.iter().all(|s| s.since.is_some_and(|since| since < s.read_at)), "{seen:?}");
    // The child has touched nothing, but the memory is hot for it too.
    let by_child = look(&mut ops, targets[1], hot, false);
    assert!(about(touched(&by_child), 64), "{by_child:?}");
    process.tell(&format!("reap {child}"));
}

#[test]
fn untouched_memory_that_strangers_map_stays_unknown() {
    needs_root!();
    let mut process = Obedient::start();
    let (memory, child) = forked(&mut process);
    let mut ops = Vaddr::new().unwrap();
    let target = ops.attach(process.pid()).unwrap();
    let read = format!("read {} 64", part(memory, 100, 64).start);
    let seen = watch(&mut ops, &[target], memory, || {
        process.tell(&read);
    });
    let visible = if private_is_seen() { 64 } else { 0 };
    assert!(about(touched(&seen), visible), "{seen:?}");
    assert!(about(shared(&seen), 512 - visible), "{seen:?}");
    process.tell(&format!("reap {child}"));
}

#[test]
fn locked_memory_is_seen() {
    needs_root!();
    let mut process = Obedient::start();
    let memory = process.map(256, "locked");
    process.touch(memory);
    let mut ops = Vaddr::new().unwrap();
    let target = ops.attach(process.pid()).unwrap();
    let hot = part(memory, 30, 50);
    let seen = watch(&mut ops, &[target], memory, || process.touch(hot));
    let (present, hot) = if private_is_seen() { (256, 50) } else { (0, 0) };
    assert_eq!(sum(&seen, |s| s.present), present, "{seen:?}");
    assert!(about(touched(&seen), hot), "{seen:?}");
}

/// `clear_refs` clears the bits of all private memory, and they must be set again.
#[test]
fn pages_cleared_in_addition_are_reported() {
    if !root_or_skip("pages_cleared_in_addition_are_reported") || !private_is_seen() {
        return;
    }
    let lost = |pages: u64| {
        let mut process = Obedient::start();
        let locked = process.map(256, "locked");
        let private = process.map(pages, "small");
        process.touch(locked);
        let mut ops = Vaddr::new().unwrap();
        let target = ops.attach(process.pid()).unwrap();
        ops.mappings(target, &mut Vec::new()).unwrap();
        let (ask, mut lost) = (Ask { target, range: locked, clear: false }, Duration::ZERO);
        let mut epochs = std::collections::BTreeSet::new();
        let begin = Instant::now();
        while epochs.len() < 2 && begin.elapsed() < TIMEOUT {
            process.touch(private);
            let mut seen = Vec::new();
            lost += ops.look(&[ask], &mut seen).unwrap().lost;
            epochs.extend(seen.iter().filter_map(|s| s.since));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(epochs.len(), 2, "epochs");
        lost
    };
    let (alone, along) = (lost(1), lost(65_536));
    assert!(along > 2 * alone, "{along:?} with 256 MiB, {alone:?} without");
}

/// Every way to read, and clearing all memory at once.
#[test]
fn without_advice_all_memory_is_seen_in_epochs() {
    needs_root!();
    for reading in [WalkMethod::Direct, WalkMethod::Probe, WalkMethod::Iterator] {
        let mut ops = match Vaddr::with(reading, Clearing::Refs) {
            // Before Linux 6.10 only one way to read works.
            Err(WalkError::NoFunction) if reading != WalkMethod::Iterator => continue,
            opened => opened.unwrap(),
        };
        let mut process = Obedient::start();
        let memory = process.map(512, "small");
        let huge = process.map(1024, "huge");
        process.touch(memory);
        process.touch(huge);
        assert_eq!(ops.reading(), reading);
        let target = ops.attach(process.pid()).unwrap();
        let hot = part(memory, 7, 200);
        let seen = watch(&mut ops, &[target], memory, || process.touch(hot));
        assert_eq!(sum(&seen, |s| s.present), 512, "{reading:?} {seen:?}");
        assert!(about(touched(&seen), 200), "{reading:?} {seen:?}");
        let in_huge = look(&mut ops, target, part(huge, 0, 512), false);
        assert_eq!(touched(&in_huge), 0, "{in_huge:?}");
        assert_eq!(process.rollup("AnonHugePages"), 4096, "no huge page is split");
    }
}

/// There, clearing young private memory flushes the TLBs. Other private memory is not touched.
#[test]
fn with_soft_dirty_bits_shared_memory_is_seen_and_private_memory_is_not_cleared() {
    if !root_or_skip("with_soft_dirty_bits_shared_memory_is_seen_and_private_memory_is_not_cleared")
    {
        return;
    }
    let mut process = Obedient::start();
    let (private, child) = forked(&mut process);
    let shared_memory = process.map(128, "shared");
    let own = process.map(512, "small");
    process.touch(shared_memory);
    // A child has no entries of shared memory before it touches it.
    let second = process.tell(&format!("fork-read {} 128", shared_memory.start));
    let second = i32::try_from(second).unwrap();
    process.touch(own);
    let mut ops = Vaddr::new().unwrap();
    ops.pretend_soft_dirty();
    let targets = [process.pid(), child, second].map(|pid| ops.attach(pid).unwrap());
    let read = format!("read {} 64", shared_memory.start);
    let mut begins = Vec::new();
    for _ in 0..4 {
        let seen = watch(&mut ops, &targets, shared_memory, || {
            process.tell(&read);
            process.touch(own);
        });
        assert_eq!(sum(&seen, |s| s.present), 128, "{seen:?}");
        assert!(about(touched(&seen), 64), "{seen:?}");
        begins.extend(seen.iter().filter_map(|s| s.since).max());
    }
    // Without a flush an epoch takes 5 s. Not every process has the pages that a flush requires.
    let is_short = |pair: &[Nanos]| pair[1].since(pair[0]) < Duration::from_secs(5);
    assert!(begins.windows(2).any(is_short), "{begins:?}");
    let seen = look(&mut ops, targets[0], private, false);
    assert_eq!(shared(&seen), 512, "{seen:?}");
    for pid in [child, second] {
        process.tell(&format!("reap {pid}"));
    }
}
