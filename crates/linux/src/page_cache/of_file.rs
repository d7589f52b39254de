//! The page cache of one file, by system calls.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use isotherm_core::AddrRange;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

use super::OVERLAYFS;
use crate::sys::{cachestat, mincore};

/// Bytes of a file whose pages are read at once: a sparse file may state any size.
const PART: usize = 1 << 30;

/// Pages of a file in the cache. A field is `None` if the kernel does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cached {
    /// in the cache
    pub cached: u64,
    /// with changes that are not on the disk yet
    pub dirty: Option<u64>,
    /// being written to the disk
    pub writeback: Option<u64>,
    /// no longer in the cache, as far as the kernel notes it
    pub evicted: Option<u64>,
}

/// Counts the pages of a file by `cachestat`, or else by `mincore`: for a file of an overlay, whose pages
/// `cachestat` does not find, and on kernels before 6.5.
///
/// # Errors
/// If the kernel refuses both. If `mincore` would report all pages as cached: it does so to users who neither own the
/// file nor may write to it.
pub fn cached(file: &File) -> io::Result<Cached> {
    let is_overlay = rustix::fs::fstatfs(file).is_ok_and(|s| s.f_type.cast_unsigned() == OVERLAYFS);
    let counted = if is_overlay { None } else { cachestat(file, AddrRange::new(0, 0)).ok() };
    match counted {
        Some(c) => Ok(Cached {
            cached: c.cached,
            dirty: Some(c.dirty),
            writeback: Some(c.writeback),
            evicted: Some(c.evicted),
        }),
        None if !may_know(file, is_overlay)? => {
            let why = "only its owner, and users who may write to it, can count its cached pages";
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
        None => Ok(Cached { cached: pages_in_parts(file, PART)?, ..Cached::default() }),
    }
}

/// The pages of a file in the cache, by `mincore` for parts of this length.
fn pages_in_parts(file: &File, len: usize) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let pages = |begin: u64| {
        let part = AddrRange::new(begin, begin.saturating_add(len as u64).min(size));
        Ok(mincore(file, part)?.into_iter().filter(|&is_cached| is_cached).count() as u64)
    };
    (0..size).step_by(len).map(pages).sum()
}

/// Whether `mincore` reports the truth to this process: the rule of `can_do_mincore` in the kernel. The file below an
/// overlay may be on a file system that is mounted read-only, whatever the overlay permits.
fn may_know(file: &File, is_overlay: bool) -> io::Result<bool> {
    let is_owner = file.metadata()?.uid() == geteuid().as_raw()
        || capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::FOWNER));
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let may_write = || accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    Ok(is_owner || !is_overlay && may_write())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Found by a review: a sparse file of 16 TiB needed 8 GiB for its pages.
    #[test]
    fn the_pages_of_a_file_are_counted_in_parts() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10 * 4096 + 1]).unwrap();
        for pages in [1, 3, 11, 12] {
            assert_eq!(pages_in_parts(&file, pages << 12).unwrap(), 11, "{pages}");
        }
        // The two vectors have 32 MiB each, if it is read at once.
        file.set_len(64 << 30).unwrap();
        assert_eq!(pages_in_parts(&file, PART).unwrap(), 11);
        file.set_len(0).unwrap();
        assert_eq!(pages_in_parts(&file, PART).unwrap(), 0);
    }
}
