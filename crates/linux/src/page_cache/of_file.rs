//! The page cache of one file, by system calls.

use std::fs::File;
use std::io;

use isotherm_core::AddrRange;

use super::OVERLAYFS;
use crate::sys::{cachestat, mincore};

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
/// If the kernel refuses both.
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
        None => {
            let cached = mincore(file)?.into_iter().filter(|&is_cached| is_cached).count() as u64;
            Ok(Cached { cached, ..Cached::default() })
        }
    }
}
