//! The memory of a group: its charge, its limits, and reclaim.

use isotherm_core::Applied;
use isotherm_core::scheme::GroupCache;

use super::{Cgroup, CgroupError, Version};
use crate::sys::Stopwatch;

/// A limit on the memory of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Limit {
    /// in bytes
    Bytes(u64),
    /// `max`
    None,
}

/// The result of [`Cgroup::reclaim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reclaimed {
    /// at least the requested bytes
    All,
    /// less: the kernel found no more memory that was worth it, or a signal arrived
    Less,
}

const REQUIRES_CONTROLLER: &str = "this requires a group with the memory controller";
const REQUIRES_RECLAIM: &str =
    "this requires a group of version 2 with the memory controller, and Linux 5.19";
const TAKES_CACHE_ONLY: &str =
    "this requires a group of version 2 with the memory controller, and Linux 6.9";
/// Only page cache: no anonymous memory goes to swap.
const CACHE_ONLY: &str = "swappiness=0";
const REQUIRES_V2: &str = "this requires a group of version 2 with the memory controller";

/// Version 1 shows "no limit" as the greatest number of whole pages.
const V1_UNLIMITED: u64 = i64::MAX as u64 / 4096 * 4096;

impl Cgroup {
    /// Bytes that are charged to the group and the groups below it: resident memory, files that they have
    /// read, and memory of the kernel for them.
    ///
    /// # Errors
    /// If the group has no memory controller.
    pub fn memory_current(&self) -> Result<u64, CgroupError> {
        let name = self.either("memory.current", "memory.usage_in_bytes");
        let text = self.read(name, REQUIRES_CONTROLLER)?;
        text.trim().parse().map_err(|_| self.parse_error(name, &text))
    }

    /// The hard limit: beyond it, the kernel reclaims from the group, and kills processes if that does not
    /// help.
    ///
    /// # Errors
    /// If the group has no memory controller.
    pub fn memory_max(&self) -> Result<Limit, CgroupError> {
        self.limit(self.either("memory.max", "memory.limit_in_bytes"), REQUIRES_CONTROLLER)
    }

    /// Sets [`Cgroup::memory_max`].
    ///
    /// # Errors
    /// If the group has no memory controller, or that is not permitted.
    pub fn set_memory_max(&self, limit: Limit) -> Result<(), CgroupError> {
        self.set_limit(
            self.either("memory.max", "memory.limit_in_bytes"),
            limit,
            REQUIRES_CONTROLLER,
        )
    }

    /// The soft limit: beyond it, the kernel slows the group down and reclaims from it, but kills nothing.
    /// Version 2 only.
    ///
    /// # Errors
    /// If the group has no such limit.
    pub fn memory_high(&self) -> Result<Limit, CgroupError> {
        self.limit("memory.high", REQUIRES_V2)
    }

    /// Requests that the kernel reclaims this many bytes from the group, the memory without access for the
    /// longest time first. Returns when the kernel has finished. Version 2 only, since Linux 5.19.
    ///
    /// # Errors
    /// If the kernel does not offer it, or that is not permitted.
    pub fn reclaim(&self, bytes: u64) -> Result<Reclaimed, CgroupError> {
        self.write_reclaim(&bytes.to_string(), REQUIRES_RECLAIM)
    }

    /// Requests that the kernel reclaims this many bytes of page cache from the group, and no anonymous memory. Returns
    /// when the kernel has finished. With 0 bytes it only shows whether this is possible.
    ///
    /// # Errors
    /// If the kernel does not offer it, or that is not permitted.
    pub fn reclaim_cache(&self, bytes: u64) -> Result<Applied, CgroupError> {
        let files = || self.memory_stat().map_or(0, |stat| stat.file);
        let (before, watch) = (files(), Stopwatch::start());
        let done = match self.write_reclaim(&format!("{bytes} {CACHE_ONLY}"), TAKES_CACHE_ONLY)? {
            Reclaimed::All => bytes,
            // The kernel does not report how much it was.
            Reclaimed::Less => before.saturating_sub(files()).min(bytes),
        };
        Ok(Applied { tried: done, applied: done, took: watch.elapsed(), ..Applied::default() })
    }

    /// The page cache of the group, and of the groups below it, that no process maps, with its refaults. `None` if it
    /// cannot be read.
    #[must_use]
    pub fn unmapped_cache(&self) -> Option<GroupCache> {
        let stat = self.memory_stat().ok()?;
        let bytes = stat.file.saturating_sub(stat.shmem).saturating_sub(stat.file_mapped);
        Some(GroupCache { bytes, refaults: stat.refault_file })
    }

    fn write_reclaim(&self, text: &str, why: &'static str) -> Result<Reclaimed, CgroupError> {
        match self.write("memory.reclaim", text) {
            Ok(()) => Ok(Reclaimed::All),
            // A signal ended the call. A second call would start again from the beginning.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                Ok(Reclaimed::Less)
            }
            Err(e) => Err(self.failed("write", "memory.reclaim", why, e)),
        }
    }

    fn either(&self, v2: &'static str, v1: &'static str) -> &'static str {
        if self.version == Version::V2 { v2 } else { v1 }
    }

    fn limit(&self, name: &str, why: &'static str) -> Result<Limit, CgroupError> {
        let text = self.read(name, why)?;
        match text.trim() {
            "max" => Ok(Limit::None),
            number => match number.parse() {
                Ok(V1_UNLIMITED..) => Ok(Limit::None),
                Ok(bytes) => Ok(Limit::Bytes(bytes)),
                Err(_) => Err(self.parse_error(name, &text)),
            },
        }
    }

    fn set_limit(&self, name: &str, limit: Limit, why: &'static str) -> Result<(), CgroupError> {
        let text = match (limit, self.version) {
            (Limit::Bytes(bytes), _) => bytes.to_string(),
            (Limit::None, Version::V2) => "max".to_owned(),
            (Limit::None, Version::V1) => "-1".to_owned(),
        };
        self.write(name, &text).map_err(|e| self.failed("write", name, why, e))
    }
}
