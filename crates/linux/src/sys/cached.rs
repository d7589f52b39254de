//! `cachestat` and `mincore`: which pages of an open file are in the page cache. Mappings that access pages or lock them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap, munmap};

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
        unsafe { madvise(map, len, Advice::LinuxPopulateRead)? };
        // The end of a mapping for random accesses leaves no mark.
        // SAFETY: the same.
        unsafe { Ok(madvise(map, len, Advice::Normal)?) }
    })
}

/// Calls `with` with the address and the length of a mapping of a part of a file, which exists for the call.
fn mapped<T>(
    file: &File,
    part: AddrRange,
    with: impl FnOnce(*mut libc::c_void, usize) -> io::Result<T>,
) -> io::Result<T> {
    let mapping = FileMapping::new(file, part)?;
    with(mapping.at, mapping.len)
}

/// A mapping of a part of a file, for reading. It ends on drop.
#[derive(Debug)]
struct FileMapping {
    at: *mut libc::c_void,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and any thread may end it.
unsafe impl Send for FileMapping {}

impl FileMapping {
    fn new(file: &File, part: AddrRange) -> io::Result<Self> {
        let len = usize::try_from(part.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { mmap(none, len, ProtFlags::READ, MapFlags::SHARED, file, part.start)? };
        let mapping = FileMapping { at, len };
        // Otherwise the kernel reads pages ahead, which nobody has asked for, and charges them to isotherm's control group.
        // SAFETY: the mapping has this length, and the advice changes no content.
        unsafe { madvise(at, len, Advice::Random)? };
        Ok(mapping)
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one, and nothing refers to it any more.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

/// A part of a file whose pages can be locked: locked pages stay in the page cache as long as this value lives.
#[derive(Debug)]
pub struct LockedMapping {
    mapping: FileMapping,
    part: AddrRange,
}

impl LockedMapping {
    /// Maps a part of a file, of which no page is locked yet.
    ///
    /// # Errors
    /// If the file cannot be mapped. If the part exceeds `RLIMIT_MEMLOCK` and this process lacks `CAP_IPC_LOCK`.
    pub fn new(file: &File, part: AddrRange) -> io::Result<Self> {
        let mapping = FileMapping::new(file, part)?;
        // SAFETY: the mapping has this length.
        unsafe { mlock_with(mapping.at, mapping.len, MlockFlags::ONFAULT)? };
        Ok(LockedMapping { mapping, part })
    }

    /// The part of the file.
    pub fn part(&self) -> AddrRange {
        self.part
    }

    /// Locks the pages of `run` within the part. Pages that are not in the cache are read from the disk.
    ///
    /// # Errors
    /// If `run` is not within the part, or the file is shorter now.
    pub fn lock(&self, run: AddrRange) -> io::Result<()> {
        if run.start < self.part.start || run.end > self.part.end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let outside = |_| io::ErrorKind::InvalidInput;
        let offset = usize::try_from(run.start - self.part.start).map_err(outside)?;
        let len = usize::try_from(run.len()).map_err(outside)?;
        // SAFETY: the run is within the mapping, and the advice changes no content.
        unsafe { Ok(madvise(self.mapping.at.byte_add(offset), len, Advice::LinuxPopulateRead)?) }
    }
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
