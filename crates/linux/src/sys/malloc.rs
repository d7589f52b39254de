//! `mallopt(3)`.

/// Bytes from which on an allocation has a mapping of its own, and that may lie free at the end of the heap.
const SPARE: libc::c_int = 1 << 20;

/// Has glibc give big allocations back to the machine when they are freed. Of its own accord it keeps, once
/// one of 11 MiB was freed, 22 MiB for the next.
pub fn keep_little_memory() {
    for what in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: it sets a number that malloc goes by, under malloc's own lock.
        unsafe { libc::mallopt(what, SPARE) };
    }
}
