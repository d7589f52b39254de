//! Counts the memory that this thread, or the whole process, has allocated by the allocator of Rust. Tests of other
//! crates include this file too.
#![allow(dead_code, reason = "each user takes what it needs")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Those of all threads.
static ALL_HELD: AtomicIsize = AtomicIsize::new(0);
static ALL_PEAK: AtomicIsize = AtomicIsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn add(bytes: isize) {
    let all = ALL_HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    ALL_PEAK.fetch_max(all, Ordering::Relaxed);
    // At the end of a thread there is nothing to count any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: it passes every call to the system's allocator unchanged, and only counts. Counting allocates nothing,
// because the thread-local cells are constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `dealloc`; the memory is of `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The bytes that this thread has allocated and not released; negative if it has released memory of others.
pub fn held() -> isize {
    HELD.get()
}

/// The result of `f`, and the most memory that it has held at a time.
pub fn most<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

/// The same of all threads, so no other thread may do anything else meanwhile.
pub fn most_of_all_threads<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = ALL_HELD.load(Ordering::Relaxed);
    ALL_PEAK.store(before, Ordering::Relaxed);
    let result = f();
    (result, usize::try_from(ALL_PEAK.load(Ordering::Relaxed) - before).unwrap_or(0))
}
