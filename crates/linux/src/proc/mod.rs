//! Readers of `/proc` and `/sys`, one kernel interface per file. Each takes the root of the file system, so
//! that tests can use a tree of their own.

mod buddyinfo;
mod children;
mod clear_refs;
mod diskstats;
mod fds;
mod kpageflags;
mod limits;
mod loadavg;
mod maps;
mod meminfo;
mod memory_block;
mod mglru;
mod mountinfo;
mod namespace;
mod numa_maps;
mod page_idle;
mod pagemap;
mod pagetypeinfo;
mod ram;
mod smaps;
mod stat;
mod status;
mod threads;
mod vmstat;
mod zoneinfo;

use std::io;
use std::path::{Path, PathBuf};

use crate::sys::is_transient;

pub use buddyinfo::{FreeBlocks, buddyinfo};
pub use children::{children, pids};
pub use clear_refs::{ClearRefs, Refs};
pub use diskstats::time_of_read;
#[cfg(test)]
pub(crate) use fds::descriptors;
pub(crate) use fds::{Descriptor, MAX_FDS, device, holdings_of};
pub use fds::{Holdings, holdings};
pub use kpageflags::{FrameContent, KPageFlags, PageFlags};
pub use limits::memlock_limit;
pub use loadavg::Births;
pub use maps::{FileCode, code, mappings, parse_maps};
pub(crate) use maps::{open_maps, too_long};
pub use meminfo::{MemInfo, meminfo};
pub use memory_block::{MemoryBlock, memory_block, memory_block_size};
pub use mglru::{MGLRU, Mglru};
pub use mountinfo::{Mount, mountinfo};
pub use namespace::{check_namespace, inner_pid, is_first_namespace};
pub use numa_maps::policies;
pub use page_idle::IdleBitmap;
pub use pagemap::{Pagemap, PagemapEntry, has_soft_dirty};
pub use pagetypeinfo::{Pageblocks, pagetypeinfo};
pub use ram::{Ram, system_ram};
pub use smaps::{AreaUsage, parse as parse_smaps, usage};
pub use stat::{Resident, Stat, comm, command, cut_comm, resident, stat};
pub(crate) use status::status_field;
pub use status::{effective_capabilities, locked, swapped};
pub use threads::{ThreadTime, is_runnable, thread_comm, threads, tids};
pub use vmstat::vmstat;
pub use zoneinfo::{
    Counters, Pageset, ReportedWatermarks, Zone, ZoneInfo, parse_zoneinfo, zoneinfo,
};

/// A kernel interface could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcError {
    /// the kernel refused it
    #[error("cannot read {path}: {source}")]
    Read {
        /// the file
        path: PathBuf,
        /// the error of the system call
        source: io::Error,
    },
    /// the file has an unknown form
    #[error("{path} has content that isotherm cannot parse: {what}")]
    Parse {
        /// the file
        path: PathBuf,
        /// the text in question
        what: String,
    },
    /// the file is too long
    #[error("{path} has more than {} MiB: too many mappings, or too long names of files", limit >> 20)]
    Long {
        /// the file
        path: PathBuf,
        /// the maximum in bytes
        limit: u64,
    },
    /// a container without a `/proc` of its own
    #[error(
        "/proc belongs to another pid namespace than isotherm, so its pids mean other processes: \
         mount it again (mount -t proc proc /proc in a mount namespace of your own, as unshare \
         --mount-proc does), or run isotherm outside"
    )]
    Foreign,
}

impl ProcError {
    fn read(path: &Path, source: io::Error) -> Self {
        ProcError::Read { path: path.to_owned(), source }
    }

    fn parse(path: &Path, what: &str) -> Self {
        let what = what.chars().take(120).collect();
        ProcError::Parse { path: path.to_owned(), what }
    }

    /// Whether the error means that the process has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let ProcError::Read { source, .. } = self else { return false };
        source.kind() == io::ErrorKind::NotFound
            || source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
    }

    /// Whether the kernel does not permit reading it.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, ProcError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether reading may succeed a little later: see [`is_transient`].
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, ProcError::Read { source, .. } if is_transient(source))
    }
}

pub(crate) fn pid_file(root: &Path, pid: i32, name: &str) -> PathBuf {
    root.join("proc").join(pid.to_string()).join(name)
}

/// Files of the kernel report no size. This buffer suffices to read most of them at once.
const FIRST_BUFFER: usize = 4096;

/// Reads a whole file of at most `limit` bytes as text. Bytes that are not UTF-8 are replaced.
fn read_limited(path: &Path, limit: u64) -> Result<String, ProcError> {
    read_up_to(path, limit).map_err(|e| ProcError::read(path, e))
}

/// Calls `each` with every line of a file of less than `limit` bytes. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// If the file cannot be read, is longer, or `each` returns None for a line.
fn read_lines(
    path: &Path,
    limit: u64,
    mut each: impl FnMut(&str) -> Option<()>,
) -> Result<(), ProcError> {
    use std::io::{BufRead, BufReader, Read};
    let read = |e| ProcError::read(path, e);
    let mut file = BufReader::new(std::fs::File::open(path).map_err(read)?.take(limit));
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line).map_err(read)? > 0 && file.get_ref().limit() > 0 {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
        each(&text).ok_or_else(|| ProcError::parse(path, &text))?;
        line.clear();
    }
    match file.get_ref().limit() {
        0 => Err(ProcError::Long { path: path.to_owned(), limit }),
        _ => Ok(()),
    }
}

/// Reads a whole file as [`read_limited`] does, and returns the original error.
pub(crate) fn read_up_to(path: &Path, limit: u64) -> io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::with_capacity(FIRST_BUFFER);
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
