//! Actions on files of the page cache, with counts of `mincore` and `cachestat`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, Applied, Budget, Failure, Nanos, PAGE_SIZE};
use isotherm_linux::page_cache::{FileAction, LockedParts};
use isotherm_linux::sys::{cachestat, mincore};
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const PAGES: u64 = 16 * MIB / PAGE_SIZE;
const ALL: AddrRange = AddrRange { start: 0, end: 16 * MIB };
/// Pages of a file that the kernel may evict during a test.
const EVICTED: u64 = PAGES / 50;
const NO_LIMIT: Budget = Budget { bytes: u64::MAX, time: Duration::MAX };

/// A cached file of 16 MiB on the disk, or the reason why there is none.
fn cached(dir: &TempDir) -> Option<File> {
    let path = dir.path().join("data");
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(&vec![1; 16 * MIB as usize], 0).unwrap();
    file.sync_all().unwrap();
    let found = cachestat(&file, ALL).is_ok_and(|stat| stat.cached + EVICTED >= PAGES);
    if !found {
        eprintln!("skipped: cachestat does not count the pages of this file system");
    }
    assert!(found || std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none());
    found.then_some(file)
}

fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Reads the file so that each page has a folio of its own.
fn read_by_page(file: &File) {
    FileAction::Drop.apply(file, ALL, NO_LIMIT).unwrap();
    fadvise(file, 0, None, Advice::Random).unwrap();
    (0..PAGES).for_each(|page| _ = file.read_at(&mut [0], page * PAGE_SIZE).unwrap());
}

fn resident(file: &File) -> u64 {
    mincore(file, ALL).unwrap().iter().filter(|cached| **cached).count() as u64
}

/// Asserts that the tried, applied and passed bytes are these, but for evicted pages.
fn assert_bytes(done: Applied, expected: [u64; 3]) {
    let found = [done.tried, done.applied, done.passed];
    let mut both = found.iter().zip(&expected);
    let near = both.all(|(found, expected)| found.abs_diff(*expected) <= EVICTED * PAGE_SIZE);
    assert!(near, "{found:?} instead of {expected:?}");
}

#[test]
fn clean_pages_are_dropped_and_read_back() {
    let dir = folder();
    let Some(file) = cached(&dir) else { return };
    let done = FileAction::Count.apply(&file, ALL, NO_LIMIT).unwrap();
    assert_bytes(done, [16 * MIB, 16 * MIB, 0]);
    let half = AddrRange::new(4 * MIB, 12 * MIB);
    let done = FileAction::Drop.apply(&file, half, NO_LIMIT).unwrap();
    assert_bytes(done, [8 * MIB, 8 * MIB, 0]);
    assert_eq!(done.failure, None);
    let in_half: Vec<bool> = mincore(&file, ALL).unwrap()[1024..3072].to_vec();
    assert!(!in_half.contains(&true) && resident(&file) + EVICTED >= PAGES / 2);
    let done = FileAction::Drop.apply(&file, half, NO_LIMIT).unwrap();
    assert_eq!((done.tried, done.applied, done.passed), (0, 0, 8 * MIB), "there is nothing left");
    let done = FileAction::Prefetch.apply(&file, ALL, NO_LIMIT).unwrap();
    assert_bytes(done, [8 * MIB; 3]);
    assert_eq!(done.failure, None);
    // The disk reads them in the meantime.
    let end = Instant::now() + Duration::from_secs(60);
    while resident(&file) + EVICTED < PAGES && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(resident(&file) + EVICTED >= PAGES);
}

#[test]
fn dirty_pages_stay_and_are_not_written() {
    let dir = folder();
    let Some(file) = cached(&dir) else { return };
    // A dirty page makes its folio dirty.
    read_by_page(&file);
    for page in [3, 700, 701] {
        file.write_all_at(&[2], page * PAGE_SIZE).unwrap();
    }
    let dirty = cachestat(&file, ALL).unwrap();
    let done = FileAction::Drop.apply(&file, ALL, NO_LIMIT).unwrap();
    let after = cachestat(&file, ALL).unwrap();
    assert_eq!((dirty.dirty, after.dirty + after.writeback), (3, 3));
    assert_eq!((after.cached, resident(&file)), (3, 3));
    let dropped = (PAGES - 3) * PAGE_SIZE;
    assert_bytes(done, [16 * MIB, dropped, 0]);
    assert_eq!(done.failure, Some(Failure::Busy));
}

#[test]
fn budgets_are_kept() {
    let dir = folder();
    let Some(file) = cached(&dir) else { return };
    // A large folio is dropped as a whole or not at all.
    read_by_page(&file);
    let budget = Budget { bytes: 5 * MIB + 3 * PAGE_SIZE, time: Duration::MAX };
    let done = FileAction::Drop.apply(&file, ALL, budget).unwrap();
    assert_bytes(done, [budget.bytes, budget.bytes, 0]);
    assert!(done.applied <= budget.bytes);
    assert!((16 * MIB - budget.bytes).abs_diff(resident(&file) * PAGE_SIZE) <= EVICTED * PAGE_SIZE);
    let budget = Budget { bytes: u64::MAX, time: Duration::ZERO };
    let done = FileAction::Prefetch.apply(&file, ALL, budget).unwrap();
    assert_eq!(done.applied, 2 * MIB, "one step");
}

#[test]
fn protected_pages_are_active() {
    let dir = folder();
    let Some(file) = cached(&dir) else { return };
    let active = || {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("Active(file):")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    // Others use the page cache as well. With generations, the figure counts the young ones.
    let mut grown = 0;
    for _ in 0..5 {
        // A page that was read once would require only one access.
        FileAction::Drop.apply(&file, ALL, NO_LIMIT).unwrap();
        FileAction::Prefetch.apply(&file, ALL, NO_LIMIT).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while resident(&file) + EVICTED < PAGES && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = active();
        let done = FileAction::Protect.apply(&file, ALL, NO_LIMIT).unwrap();
        assert_bytes(done, [16 * MIB, 16 * MIB, 0]);
        assert_eq!(done.failure, None);
        grown = grown.max(active().saturating_sub(before));
    }
    assert!(grown >= 14 * MIB, "{grown}");
}

/// Locked pages stay although the kernel is told to drop them, up to the limit and until a minute has passed.
#[test]
fn locked_parts_stay_in_the_cache() {
    let dir = folder();
    let Some(file) = cached(&dir) else { return };
    let key = (0, 1, 0);
    let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
    let drop_all = || FileAction::Drop.apply(&file, ALL, NO_LIMIT).unwrap();
    let is_near = |bytes: u64, expected: u64| bytes.abs_diff(expected) <= EVICTED * PAGE_SIZE;
    // A large folio of which a part is locked stays as a whole.
    read_by_page(&file);
    let mut locked = LockedParts::default();
    // From the middle of a step on.
    let part = AddrRange::new(3 * MIB, 9 * MIB);
    if let Err(e) = locked.lock((key, &file), part, 16 * MIB, at(0)) {
        eprintln!("skipped: the kernel does not lock memory of this process: {e}");
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none());
        return;
    }
    assert!(is_near(locked.bytes(), 6 * MIB));
    drop_all();
    assert!(is_near(resident(&file) * PAGE_SIZE, locked.bytes()));
    // Again, and with a part that overlaps it: no page counts twice, and absent pages are not read.
    locked.lock((key, &file), part, 16 * MIB, at(30)).unwrap();
    locked.lock((key, &file), AddrRange::new(8 * MIB, 12 * MIB), 16 * MIB, at(30)).unwrap();
    assert!(is_near(locked.bytes(), 6 * MIB), "{}", locked.bytes());
    assert!(is_near(resident(&file) * PAGE_SIZE, 6 * MIB));
    locked.unlock_old(at(89));
    assert!(is_near(locked.bytes(), 6 * MIB));
    locked.unlock_old(at(90));
    assert_eq!(locked.bytes(), 0);
    drop_all();
    assert!(is_near(resident(&file) * PAGE_SIZE, 0));
    // No more than the limit.
    read_by_page(&file);
    locked.lock((key, &file), ALL, 5 * MIB, at(100)).unwrap();
    assert!(is_near(locked.bytes(), 4 * MIB), "whole steps only: {}", locked.bytes());
    drop(locked);
    drop_all();
    assert!(is_near(resident(&file) * PAGE_SIZE, 0));
}
