//! Memory that comes and goes while it is watched, and a recorder that is delayed.

#![allow(clippy::undocumented_unsafe_blocks, reason = "memory of our own, mapped for this")]

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isotherm_core::{AddrRange, Heat, RegionView, Thresholds, Unknown};
use isotherm_linux::sys;
use isotherm_record::FileEndReason;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mprotect,
    mremap, munmap,
};
use rustix::process::Signal;

use crate::load::{Load, MIB};
use crate::record::assert_found;
use crate::run::{Record, Recorder, needs_root, until};

/// The number of system calls that have changed mappings.
static CHANGES: AtomicU64 = AtomicU64::new(0);

pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// Starts threads that map, protect, drop and unmap memory, thousands of times a second.
pub fn start() {
    for first in 0..2 {
        std::thread::spawn(move || {
            // Leaves CPU time to the threads that touch memory, and to the monitor.
            let _ = rustix::process::setpriority_process(None, 19);
            for turn in first.. {
                change_mappings(turn);
            }
        });
    }
}

fn change_mappings(turn: u64) {
    const HUGE: usize = 2 << 20;
    let huge = turn.is_multiple_of(8);
    let size = if huge { 2 * HUGE } else { 0x40_000 << (turn % 3) };
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    unsafe {
        let start = mmap_anonymous(std::ptr::null_mut(), size, prot, MapFlags::PRIVATE).unwrap();
        let at = |offset: usize| start.byte_add(offset);
        if huge {
            madvise(start, size, Advice::LinuxHugepage).unwrap();
        }
        for page in (0..size).step_by(if huge { HUGE / 4 } else { 8192 }) {
            at(page).cast::<u8>().write_volatile(1);
        }
        mprotect(at(size / 4), size / 4, MprotectFlags::READ).unwrap();
        madvise(at(size / 2), size / 4, Advice::LinuxDontNeed).unwrap();
        munmap(at(size / 8), size / 8).unwrap();
        std::thread::sleep(Duration::from_micros(200));
        // The longer mapping does not fit in its place.
        let moved = mremap(at(size / 2), size / 2, size, MremapFlags::MAYMOVE).unwrap();
        // Leaves out the gap: the other thread may have mapped memory there since.
        munmap(start, size / 8).unwrap();
        munmap(at(size / 4), size / 4).unwrap();
        munmap(moved, size).unwrap();
    }
    CHANGES.fetch_add(8, Ordering::Relaxed);
}

fn inside(record: &Record, of: AddrRange) -> impl Iterator<Item = &RegionView> {
    let last = record.snapshots.iter().rev().take(10);
    let regions = last.flat_map(|s| &s.targets).flat_map(|t| &t.regions);
    regions.filter(move |r| r.range.intersect(&of) == Some(r.range))
}

#[test]
fn hot_memory_is_found_while_mappings_change() {
    needs_root!();
    let mut load = Load::start(128, 16);
    load.churn();
    let (pid, before) = (load.pid().to_string(), load.changes());
    let mut recorder = Recorder::counted(&["--pid", &pid]);
    recorder.until_more(50);
    until("many changes", || load.changes() - before >= 6_000);
    let record = recorder.stop();
    record.assert_without_gaps();
    assert_found(&record, load.memory, load.hot);
    let (mut all, mut unknown) = (0, 0);
    for r in inside(&record, load.memory) {
        all += r.range.len();
        unknown += r.bytes(&Thresholds::default()).unknown;
    }
    assert!(unknown <= all / 20, "{unknown} of {all} bytes that stay are unknown");
}

/// Pages reserved for hugetlb, released when dropped. Only one test has them at a time.
pub struct Reserved {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

static RESERVED: Mutex<()> = Mutex::new(());

const POOL: &str = "/proc/sys/vm/nr_hugepages";

impl Reserved {
    pub fn more(pages: u64) -> Self {
        // A test that failed has released its pages.
        let alone = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fs::read_to_string(POOL).unwrap().trim().parse().unwrap();
        let reserved = Reserved { before, _alone: alone };
        fs::write(POOL, (before + pages).to_string()).unwrap();
        reserved
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = fs::write(POOL, self.before.to_string());
    }
}

#[test]
fn hugetlb_memory_is_neither_hot_nor_cold() {
    needs_root!();
    let _pages = Reserved::more(4);
    let mut load = Load::start(16, 4);
    let huge = load.hugetlb(2);
    let mut recorder = Recorder::counted(&["--pid", &load.pid().to_string()]);
    recorder.until_more(10);
    let record = recorder.stop();
    let regions: Vec<_> = inside(&record, huge).collect();
    let last = regions.iter().map(|r| r.range.len()).sum::<u64>() / 10;
    assert!(last >= huge.len() / 2, "{last} bytes a snapshot: {regions:?}");
    for r in regions {
        let bytes = r.bytes(&Thresholds::default());
        assert_eq!(bytes.unknown, r.unknown_bytes(Unknown::Hugetlb), "{r:?}");
        assert_eq!((bytes.unknown, bytes.hot + bytes.warm + bytes.cold), (r.range.len(), 0));
    }
}

/// Anonymous memory of hugetlb, all of it written once.
pub fn map_hugetlb(pages: u64) -> AddrRange {
    let len = pages * 2 * MIB;
    let size = usize::try_from(len).unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, prot, flags).unwrap() };
    (0..pages).for_each(|i| unsafe {
        start.byte_add(usize::try_from(i * 2 * MIB).unwrap()).cast::<u8>().write_volatile(1);
    });
    AddrRange::new(start as u64, start as u64 + len)
}

/// After Ctrl-Z, a debugger or a delay of the machine, rates are those of the elapsed time.
#[test]
fn a_recorder_that_was_held_up_goes_on_rightly() {
    needs_root!();
    let gap = Duration::from_secs(2);
    let load = Load::start(64, 8);
    let mut recorder = Recorder::counted(&["--pid", &load.pid().to_string()]);
    recorder.until_more(15);
    recorder.signal(Signal::STOP);
    std::thread::sleep(gap / 10);
    let stopped = sys::monotonic();
    std::thread::sleep(gap);
    let gone_on = sys::monotonic();
    recorder.signal(Signal::CONT);
    recorder.until_more(25);
    let record = recorder.stop();
    record.assert_without_gaps();
    assert_eq!(record.end.as_ref().unwrap().why, FileEndReason::Stopped);
    let long = |s: &isotherm_core::Snapshot| s.start <= stopped && gone_on <= s.end;
    assert_eq!(record.snapshots.iter().filter(|s| long(s)).count(), 1, "the gap is in one of them");
    let span = record.snapshots.last().unwrap().end.since(record.snapshots[0].start);
    let (count, most) = (record.snapshots.len(), (span - gap).as_millis() / 100 + 2);
    assert!(count as u128 <= most, "{count} in {span:?}: lost intervals are not made up for");
    assert_found(&record, load.memory, load.hot);
    // Memory that is touched every few ms, and memory that is never touched, also in the interval that took
    // so long. The load may be delayed for a moment, too.
    let (mut hot, mut right) = (0, 0);
    let settled = record.snapshots.iter().filter(|s| s.seq >= 10);
    let last = |seq: u64| seq + 10 >= record.snapshots.len() as u64;
    for s in settled.filter(|s| long(s) || last(s.seq)) {
        let regions = s.targets.iter().flat_map(|t| &t.regions);
        for r in regions.filter(|r| r.range.intersect(&load.memory) == Some(r.range)) {
            if r.range.intersect(&load.hot) == Some(r.range) {
                hot += r.range.len();
                right += if r.rate.high >= 50.0 { r.range.len() } else { 0 };
            } else if r.range.intersect(&load.hot).is_none() {
                assert!(r.heat(&Thresholds::default()) != Heat::Hot, "{r:?} in {}", s.seq);
            }
        }
    }
    assert!(hot > 0 && right * 5 >= hot * 4, "{right} of {hot} bytes have a rate that may be");
}
