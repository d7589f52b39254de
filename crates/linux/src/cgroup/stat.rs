//! `memory.stat`.

use super::{Cgroup, CgroupError, Version};

/// The content of `memory.stat` for a group and the groups below it: bytes, and events since the group was
/// created. A figure that the kernel does not count is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStat {
    /// anonymous memory, except in swap
    pub anon: u64,
    /// page cache of files, including shared memory and tmpfs
    pub file: u64,
    /// shared memory and tmpfs, a part of `file`
    pub shmem: u64,
    /// mapped memory, a part of `file`
    pub file_mapped: u64,
    /// on an LRU list
    pub inactive_file: u64,
    /// likewise
    pub active_file: u64,
    /// locked, or not reclaimable for another reason
    pub unevictable: u64,
    /// pages that reclaim has scanned; version 1 does not count them
    pub scanned: u64,
    /// pages read back from swap soon after they were reclaimed
    pub refault_anon: u64,
    /// pages of files that were read back
    pub refault_file: u64,
    /// faults that waited for a disk
    pub major_faults: u64,
}

const NAME: &str = "memory.stat";

impl Cgroup {
    /// Reads `memory.stat`.
    ///
    /// # Errors
    /// If the group has no memory controller.
    pub fn memory_stat(&self) -> Result<MemoryStat, CgroupError> {
        let text = self.read(NAME, "this requires a group with the memory controller")?;
        parse(&text, self.version).ok_or_else(|| self.parse_error(NAME, &text))
    }
}

fn parse(text: &str, version: Version) -> Option<MemoryStat> {
    let mut stat = MemoryStat::default();
    for line in text.lines() {
        let (key, value) = line.split_once(' ')?;
        // In version 1, keys without this prefix count only the group itself.
        let key = match version {
            Version::V2 => Some(key),
            Version::V1 => key.strip_prefix("total_"),
        };
        if let Some(field) = key.and_then(|key| stat.field(key)) {
            *field = value.parse().ok()?;
        }
    }
    Some(stat)
}

impl MemoryStat {
    /// The field with this name in version 2 or in version 1.
    fn field(&mut self, key: &str) -> Option<&mut u64> {
        Some(match key {
            "anon" | "rss" => &mut self.anon,
            "file" | "cache" => &mut self.file,
            "shmem" => &mut self.shmem,
            "file_mapped" | "mapped_file" => &mut self.file_mapped,
            "inactive_file" => &mut self.inactive_file,
            "active_file" => &mut self.active_file,
            "unevictable" => &mut self.unevictable,
            "pgscan" => &mut self.scanned,
            "workingset_refault_anon" => &mut self.refault_anon,
            "workingset_refault_file" => &mut self.refault_file,
            "pgmajfault" => &mut self.major_faults,
            _ => return None,
        })
    }
}
