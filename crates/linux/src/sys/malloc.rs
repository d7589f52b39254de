//! `mallopt(3)`.

/// Allocations from this size on get a mapping of their own. At most this many free bytes stay at the end of
/// the heap.
const KEPT_HEAP_BYTES: libc::c_int = 1 << 20;

/// Makes glibc return large allocations to the kernel when they are freed. By default, after one of 11 MiB
/// was freed, it keeps 22 MiB for the next.
pub fn keep_little_memory() {
    for what in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: it sets a parameter of malloc, under malloc's own lock.
        unsafe { libc::mallopt(what, KEPT_HEAP_BYTES) };
    }
}
