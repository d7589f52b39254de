//! The `PAGEMAP_SCAN` ioctl of `/proc/PID/pagemap`, since Linux 6.7.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use isotherm_core::{AddrRange, PAGE_SIZE, align_down, join_touching};

use crate::proc::PagemapEntry;

/// `_IOWR('f', 16, struct pm_scan_arg)`, which has 96 bytes.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// The zero page, or the huge zero page.
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// A huge page, mapped by one entry.
const PAGE_IS_HUGE: u64 = 1 << 6;
/// Bytes to scan in one call. During the call the process cannot map memory.
const SCAN_SPAN: u64 = 1 << 30;
/// Maximum number of ranges in one call.
const RANGES: usize = 1024;

/// `struct pm_scan_arg` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Appends the resident parts of `range` in the address space of `pagemap`: sorted, disjoint, at most `limit`
/// ranges. The zero page is not memory of the process.
///
/// # Errors
/// ENOTTY before Linux 6.7; ESRCH if the address space has gone.
pub fn resident_ranges(
    pagemap: &File,
    range: AddrRange,
    limit: usize,
    out: &mut Vec<AddrRange>,
) -> io::Result<()> {
    let mut found = vec![PageRegion::default(); RANGES];
    let mut resident = Vec::new();
    let mut at = range.start;
    while at < range.end && out.len() + resident.len() < limit {
        let end = range.end.min(at.saturating_add(SCAN_SPAN));
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: at,
            end,
            vec: found.as_mut_ptr() as u64,
            vec_len: found.len() as u64,
            category_inverted: PAGE_IS_PFNZERO,
            category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO,
            return_mask: PAGE_IS_PRESENT,
            ..ScanArg::default()
        };
        // SAFETY: `arg` has the type that the call requires, and `found` has room for the stated number of
        // elements. Both live until the call returns.
        let n = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        resident.extend(found.iter().take(n).map(|r| AddrRange::new(r.start, r.end)));
        // If the kernel restarted the walk within the call, it does not report its end correctly.
        at = match found.get(n.saturating_sub(1)) {
            Some(last) if n == RANGES && last.end > at => last.end,
            _ => end,
        };
    }
    out.extend(join_touching(resident));
    out.truncate(limit);
    Ok(())
}

/// The state of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// no memory, or the zero page
    Absent,
    /// in swap
    Swapped,
    /// resident
    Base,
    /// a part of a resident huge page that one entry maps
    Huge,
}

/// The state of the page at `address` in the address space of `pagemap`.
///
/// # Errors
/// ENOTTY before Linux 6.7; ESRCH if the address space has gone.
pub fn page_state(pagemap: &File, address: u64) -> io::Result<PageState> {
    let start = align_down(address, PAGE_SIZE);
    let mut found = [PageRegion::default()];
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        start,
        end: start + PAGE_SIZE,
        vec: found.as_mut_ptr() as u64,
        vec_len: 1,
        category_inverted: PAGE_IS_PFNZERO,
        category_mask: PAGE_IS_PFNZERO,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED | PAGE_IS_HUGE,
        ..ScanArg::default()
    };
    // SAFETY: `arg` has the type that the call requires, and `found` has room for the stated number of elements.
    // Both live until the call returns.
    match unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) } {
        0 => Ok(PageState::Absent),
        n if n < 0 => Err(io::Error::last_os_error()),
        _ if found[0].categories & PAGE_IS_SWAPPED != 0 => Ok(PageState::Swapped),
        _ if found[0].categories & PAGE_IS_HUGE != 0 => Ok(PageState::Huge),
        _ => Ok(PageState::Base),
    }
}

/// The entry of the page at `address` in the address space of `pagemap`, without its page frame if `CAP_SYS_ADMIN` is missing.
///
/// # Errors
/// If the address space has gone.
pub fn pagemap_entry(pagemap: &File, address: u64) -> io::Result<PagemapEntry> {
    let mut word = [0; 8];
    pagemap.read_exact_at(&mut word, address / PAGE_SIZE * 8)?;
    Ok(PagemapEntry(u64::from_ne_bytes(word)))
}

#[cfg(test)]
mod tests {
    use super::super::OwnPages;
    use super::*;

    #[test]
    fn touched_pages_are_resident() {
        let mut own = OwnPages::map(16).unwrap();
        [1, 2, 9].into_iter().for_each(|page| own.write(page, 1));
        assert_eq!(own.read(5), 0, "it maps the zero page");
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let resident = |range, limit| {
            let mut out = Vec::new();
            resident_ranges(&pagemap, range, limit, &mut out).map(|()| out)
        };
        let all = match resident(own.range(0, 16), 10) {
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => return, // before Linux 6.7
            all => all.unwrap(),
        };
        assert_eq!(all, [own.range(1, 2), own.range(9, 1)]);
        let state = |page| page_state(&pagemap, own.range(page, 1).start + 7).unwrap();
        assert_eq!([0, 1, 5].map(state), [PageState::Absent, PageState::Base, PageState::Absent]);
        assert_eq!(resident(own.range(0, 16), 1).unwrap(), [own.range(1, 2)]);
        assert_eq!(resident(own.range(3, 4), 10).unwrap(), []);
    }

    /// More ranges than fit into one call.
    #[test]
    fn many_ranges_take_several_calls() {
        let mut own = OwnPages::map(4096).unwrap();
        (0..2048).for_each(|i| own.write(i * 2, 1));
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut out = Vec::new();
        match resident_ranges(&pagemap, own.range(0, 4096), 1 << 20, &mut out) {
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {}
            done => {
                done.unwrap();
                assert_eq!(out.len(), 2048);
            }
        }
    }
}
