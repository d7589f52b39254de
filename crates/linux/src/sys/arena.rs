//! Memory that the threads of this process touch, for a monitor to watch.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use isotherm_core::{AddrRange, PAGE_SIZE, align_down};
use rustix::mm::Advice;

use super::OwnPages;

/// The kind of the pages, and whether a forked child inherits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArenaKind {
    /// base pages; a forked child does not have them
    Base,
    /// huge pages as far as they fit; a forked child does not have them
    Huge,
    /// base pages; a forked child has them
    Inherited,
}

/// Memory of this process: anonymous, from a multiple of 2 MiB on, or of a file. Unmapped when dropped.
pub struct Arena {
    pages: OwnPages,
    len: u64,
}

// SAFETY: the memory is accessed only through atomics, and the mapping does not change.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `len` bytes without touching them.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map(len: u64) -> io::Result<Self> {
        Ok(Arena { pages: OwnPages::map_aligned(len, 2 << 20)?, len })
    }

    /// Maps `len` bytes of a file in memory, which has an inode number of its own.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map_file(len: u64) -> io::Result<Self> {
        Ok(Arena { pages: OwnPages::map_shared(len, 2 << 20)?, len })
    }

    /// Maps `len` bytes of a file, which must be at least as long, from any page on.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn of_file(file: &File, len: u64) -> io::Result<Self> {
        Ok(Arena { pages: OwnPages::map_file(file, len)?, len })
    }

    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> AddrRange {
        self.pages.range(0, self.len / PAGE_SIZE)
    }

    /// Sets the kind of the pages in `range`, which are offsets, before they are touched.
    ///
    /// # Errors
    /// Those of `madvise`.
    pub fn back(&self, range: AddrRange, backing: ArenaKind) -> io::Result<()> {
        let pages = range.start / PAGE_SIZE..range.end / PAGE_SIZE;
        let huge = backing == ArenaKind::Huge;
        let size = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        self.pages.advise(pages.clone(), size)?;
        if backing == ArenaKind::Inherited {
            return Ok(());
        }
        self.pages.advise(pages, Advice::LinuxDontFork)
    }

    /// Reads a byte of a page. Does nothing if there is no such page.
    pub fn read(&self, page: u64) {
        std::hint::black_box(self.byte(page).map(|b| b.load(Ordering::Relaxed)));
    }

    /// Writes a byte of a page. Does nothing if there is no such page.
    pub fn write(&self, page: u64) {
        if let Some(byte) = self.byte(page) {
            byte.store(1, Ordering::Relaxed);
        }
    }

    /// All of the memory, as words of 8 bytes.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let len = usize::try_from(align_down(self.len, PAGE_SIZE) / 8).unwrap_or(0);
        // SAFETY: the mapping is readable and writable for as long as `self` lives, it begins at a multiple
        // of a page, and its bytes are accessed only through atomics.
        unsafe { std::slice::from_raw_parts(self.range().start as usize as *const AtomicU64, len) }
    }

    fn byte(&self, page: u64) -> Option<&AtomicU8> {
        let addr = self.pages.range(page, 1).start;
        // SAFETY: the address lies in the mapping, which lives as long as `self`, and its bytes are accessed
        // only through atomics.
        self.range().contains(addr).then(|| unsafe { AtomicU8::from_ptr(addr as usize as *mut u8) })
    }
}
