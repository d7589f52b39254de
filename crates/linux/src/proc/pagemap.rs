//! `/proc/PID/pagemap`: the information about a page that does not require root.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use isotherm_core::{AddrRange, PAGE_SIZE, join_touching};

use super::{ProcError, pid_file};
use crate::sys::{OwnPages, resident_ranges};
use crate::walker::own_pid;

/// The word of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagemapEntry(pub u64);

impl PagemapEntry {
    /// Whether the page is resident (bit 63).
    #[must_use]
    pub fn is_present(self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// Whether the page is in swap (bit 62), or is being moved.
    #[must_use]
    pub fn is_swapped(self) -> bool {
        !self.is_present() && self.0 >> 62 & 1 == 1
    }

    /// The page frame of a present page (bits 0 to 54); 0 without `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn frame(self) -> u64 {
        self.0 & ((1 << 55) - 1)
    }

    /// Whether the page was written since it was mapped, or since this bit was cleared (bit 55). Never set on
    /// kernels without soft-dirty bits.
    #[must_use]
    pub fn is_soft_dirty(self) -> bool {
        self.0 >> 55 & 1 == 1
    }

    /// Whether the page is of a file or of shared memory (bit 61).
    #[must_use]
    pub fn is_of_file(self) -> bool {
        self.0 >> 61 & 1 == 1
    }

    /// Whether only this entry maps the page (bit 56).
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }
}

/// Whether this kernel has soft-dirty bits. Tests it on a page of our own.
///
/// # Errors
/// If no memory is available, or there is no `/proc`.
pub fn has_soft_dirty(root: &Path) -> Result<bool, ProcError> {
    let failed = |e| ProcError::read(&pid_file(root, own_pid(), "pagemap"), e);
    let mut own = OwnPages::map(1).map_err(failed)?;
    own.write(0, 1);
    let entry = Pagemap::open(root, own_pid())?.read(own.range(0, 1)).next();
    Ok(entry.is_some_and(PagemapEntry::is_soft_dirty))
}

/// The open file of one address space. After an `exec` it still refers to the old one.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    buffer: Vec<u8>,
}

impl Pagemap {
    /// Opens the file of `pid`.
    ///
    /// # Errors
    /// If there is no such process, or it belongs to another user and `CAP_SYS_PTRACE` is missing.
    pub fn open(root: &Path, pid: i32) -> Result<Self, ProcError> {
        let path = pid_file(root, pid, "pagemap");
        let file = File::open(&path).map_err(|e| ProcError::read(&path, e))?;
        Ok(Pagemap { file, buffer: Vec::new() })
    }

    /// The words of the pages of `range`. Fewer if the address space has gone.
    pub fn read(&mut self, range: AddrRange) -> impl Iterator<Item = PagemapEntry> + '_ {
        let len = usize::try_from(range.len() / PAGE_SIZE * 8).unwrap_or(0);
        self.buffer.resize(len, 0);
        let got = self.file.read_at(&mut self.buffer, range.start / PAGE_SIZE * 8).unwrap_or(0);
        let (words, _) = self.buffer.get(..got).unwrap_or_default().as_chunks();
        words.iter().map(|&w| PagemapEntry(u64::from_ne_bytes(w)))
    }

    /// Appends the resident parts of `range`, sorted and disjoint, until `out` has `limit` elements. Appends
    /// nothing if the address space has gone.
    pub fn resident(&mut self, range: AddrRange, limit: usize, out: &mut Vec<AddrRange>) {
        let before = out.len();
        if resident_ranges(&self.file, range, limit, out).is_ok() {
            return;
        }
        out.truncate(before);
        let mut at = range.start;
        while at < range.end && out.len() < limit {
            let part = AddrRange::new(at, range.end.min(at + READ_SPAN));
            let entries = self.read(part).enumerate().filter(|(_, e)| e.is_present());
            let pages = entries.map(|(i, _)| at + i as u64 * PAGE_SIZE);
            out.extend(join_touching(pages.map(|p| AddrRange::new(p, p + PAGE_SIZE))));
            at = part.end;
        }
        out.truncate(limit);
    }
}

/// Bytes of memory that one read of the file covers.
const READ_SPAN: u64 = 128 << 20;
