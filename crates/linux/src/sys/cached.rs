//! `cachestat` and `mincore`: which pages of an open file are in the page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CacheStat {
    /// in the cache
    pub cached: u64,
    /// with changes that are not on the disk yet
    pub dirty: u64,
    /// being written to the disk
    pub writeback: u64,
    /// no longer in the cache, as far as the kernel notes it
    pub evicted: u64,
    /// those of them that would still be there with a little more memory
    pub recently_evicted: u64,
}

/// `SYS_cachestat`, the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// Counts the pages of a part of a file (since Linux 6.5); an empty part is the whole file. A file that was opened through an overlay has none. The
/// kernel requires the permission to write to the file, or its owner.
///
/// # Errors
/// If the kernel lacks the call or refuses it.
pub fn cachestat(file: &File, part: AddrRange) -> io::Result<CacheStat> {
    let part = [part.start, part.len()];
    let mut stat = CacheStat::default();
    // SAFETY: both arguments have the form that the kernel expects, and live until the call returns.
    let done =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), part.as_ptr(), &raw mut stat, 0) };
    if done == 0 { Ok(stat) } else { Err(io::Error::last_os_error()) }
}

/// Accesses each page of a part of a file twice through a mapping of its own. When the mapping is populated, and
/// when it ends, the kernel marks the pages as `read()` does. No tracepoint of reads fires. Pages that are not in
/// the cache are read from the disk.
///
/// # Errors
/// If the file cannot be mapped, or is shorter.
pub fn access_mapped(file: &File, part: AddrRange) -> io::Result<()> {
    mapped(file, part, |map, len| {
        // SAFETY: the mapping has this length, and the advice changes no content.
        unsafe { Ok(madvise(map, len, Advice::LinuxPopulateRead)?) }
    })
}

/// Calls `with` with the address and the length of a mapping of a part of a file, which exists for the call.
fn mapped<T>(
    file: &File,
    part: AddrRange,
    with: impl FnOnce(*mut libc::c_void, usize) -> io::Result<T>,
) -> io::Result<T> {
    let len = usize::try_from(part.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let none = std::ptr::null_mut();
    // SAFETY: a new mapping at an address that the kernel chooses.
    let map = unsafe { mmap(none, len, ProtFlags::READ, MapFlags::SHARED, file, part.start)? };
    let done = with(map, len);
    // SAFETY: the mapping is the one above, and nothing refers to it any more.
    unsafe { munmap(map, len)? };
    done
}

/// The pages of a part of a file in the cache, from its first to its last. It maps the part for the call, and needs two
/// bytes for each page, also of a sparse file.
///
/// # Errors
/// If the file cannot be mapped. The kernel reports all pages as cached to those who may not write to the file.
pub fn mincore(file: &File, part: AddrRange) -> io::Result<Vec<bool>> {
    mapped(file, part, |map, bytes| {
        let mut pages = vec![0_u8; bytes.div_ceil(PAGE_SIZE as usize)];
        // SAFETY: the mapping has this length, and the vector a byte for each of its pages.
        let done = unsafe { libc::mincore(map, bytes, pages.as_mut_ptr()) };
        if done == 0 {
            Ok(pages.iter().map(|page| page & 1 == 1).collect())
        } else {
            Err(io::Error::last_os_error())
        }
    })
}
