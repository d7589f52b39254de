//! Pages of this process, for tests of the kernel.

use std::fs::File;
use std::io;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};

/// Memory of this process, anonymous or of a file. Unmapped when dropped.
pub struct OwnPages {
    base: *mut libc::c_void,
    len: usize,
    /// aligned start of the usable part
    start: u64,
}

impl OwnPages {
    /// Maps `pages` base pages without touching them. They do not cross a multiple of 2 MiB, if they fit.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map(pages: u64) -> io::Result<Self> {
        let own = Self::map_aligned(pages * PAGE_SIZE, pages.next_power_of_two() * PAGE_SIZE)?;
        own.advise(0..pages, mm::Advice::LinuxNoHugepage)?;
        Ok(own)
    }

    /// Maps `len` bytes from a multiple of `align` on.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map_aligned(len: u64, align: u64) -> io::Result<Self> {
        Self::map_as(len, align, MapFlags::PRIVATE)
    }

    /// Maps `len` bytes from a multiple of `align` on, shared with forked children. The kernel keeps them as
    /// a file in memory.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map_shared(len: u64, align: u64) -> io::Result<Self> {
        Self::map_as(len, align, MapFlags::SHARED)
    }

    /// Maps the first `len` bytes of a file, shared with all processes that map it.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map_file(file: &File, len: u64) -> io::Result<Self> {
        let total = usize::try_from(len).map_err(io::Error::other)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; it replaces nothing.
        let base =
            unsafe { mm::mmap(std::ptr::null_mut(), total, prot, MapFlags::SHARED, file, 0)? };
        Ok(OwnPages { base, len: total, start: base as u64 })
    }

    fn map_as(len: u64, align: u64, flags: MapFlags) -> io::Result<Self> {
        let total = usize::try_from(len + align - PAGE_SIZE).map_err(io::Error::other)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; it replaces nothing.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), total, prot, flags)? };
        let start = (base as u64).next_multiple_of(align);
        Ok(OwnPages { base, len: total, start })
    }

    /// The addresses of pages `first..first + pages`.
    #[must_use]
    pub fn range(&self, first: u64, pages: u64) -> AddrRange {
        let start = self.start + first * PAGE_SIZE;
        AddrRange::new(start, start + pages * PAGE_SIZE)
    }

    fn word(&self, page: u64) -> *mut u64 {
        assert!(self.range(page, 1).end <= self.base as u64 + self.len as u64);
        self.range(page, 1).start as usize as *mut u64
    }

    /// Writes the first word of a page.
    pub fn write(&mut self, page: u64, word: u64) {
        // SAFETY: `word` checks that the address lies in our mapping. No code in this crate writes to pages
        // after removing their permissions. Volatile, because the access itself is the purpose.
        unsafe { self.word(page).write_volatile(word) }
    }

    /// Reads the first word of a page.
    #[must_use]
    pub fn read(&self, page: u64) -> u64 {
        // SAFETY: as in `write`.
        unsafe { self.word(page).read_volatile() }
    }

    /// Gives advice for some pages.
    ///
    /// # Errors
    /// Those of `madvise`.
    pub fn advise(&self, pages: std::ops::Range<u64>, advice: mm::Advice) -> io::Result<()> {
        let range = self.range(pages.start, pages.end - pages.start);
        let len = usize::try_from(range.len()).map_err(io::Error::other)?;
        // SAFETY: the range is ours, and no advice used here (COLD, HUGEPAGE, NOHUGEPAGE,
        // DONTNEED) makes it inaccessible.
        unsafe { mm::madvise(range.start as usize as *mut libc::c_void, len, advice) }
            .map_err(Into::into)
    }

    /// Makes huge pages of some pages, regardless of the settings of the machine (Linux 6.1).
    ///
    /// # Errors
    /// Those of `madvise`.
    pub fn collapse(&self, pages: std::ops::Range<u64>) -> io::Result<()> {
        let range = self.range(pages.start, pages.end - pages.start);
        let len = usize::try_from(range.len()).map_err(io::Error::other)?;
        let start = range.start as usize as *mut libc::c_void;
        // SAFETY: the range is ours; the call does not change its content.
        match unsafe { libc::madvise(start, len, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Permanently removes all permissions from some pages.
    ///
    /// # Errors
    /// Those of `mprotect`.
    pub fn protect_none(&self, first: u64, pages: u64) -> io::Result<()> {
        self.protect(first, pages, MprotectFlags::empty())
    }

    /// Makes some pages read-only.
    ///
    /// # Errors
    /// Those of `mprotect`.
    pub fn protect_read(&self, first: u64, pages: u64) -> io::Result<()> {
        self.protect(first, pages, MprotectFlags::READ)
    }

    fn protect(&self, first: u64, pages: u64, flags: MprotectFlags) -> io::Result<()> {
        let range = self.range(first, pages);
        let len = usize::try_from(range.len()).map_err(io::Error::other)?;
        // SAFETY: the range is ours; no Rust object lives in it.
        unsafe { mm::mprotect(range.start as usize as *mut libc::c_void, len, flags) }
            .map_err(Into::into)
    }
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping from `map_aligned`. No reference into it can exist, because
        // none was ever returned.
        let _ = unsafe { mm::munmap(self.base, self.len) };
    }
}
