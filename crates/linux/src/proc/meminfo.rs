//! `/proc/meminfo`: the memory of the machine, by use.

use std::path::Path;

use super::{ProcError, read_limited};

/// The figures that isotherm needs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemInfo {
    /// all memory that the kernel manages
    pub total: u64,
    /// unused memory
    pub free: u64,
    /// the kernel's estimate of the memory that can be allocated without swapping
    pub available: u64,
    /// on LRU lists, without the unevictable one
    pub evictable: u64,
    /// locked by `mlock`
    pub mlocked: u64,
    /// explicit huge pages of all sizes, including unused pages of the pool
    pub hugetlb: u64,
    /// shared memory, and tmpfs
    pub shared: u64,
    /// memory of files on LRU lists
    pub files: u64,
    /// memory of files and shared memory that a process maps
    pub mapped: u64,
}

/// Reads `/proc/meminfo`.
///
/// # Errors
/// If the file does not exist, or lacks a figure that kernels report since 3.14.
pub fn meminfo(root: &Path) -> Result<MemInfo, ProcError> {
    let path = root.join("proc/meminfo");
    let text = read_limited(&path, 64 << 10)?;
    parse(&text).ok_or_else(|| ProcError::parse(&path, &text))
}

fn parse(text: &str) -> Option<MemInfo> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    // A kernel without such memory has no line for it.
    let some = |name: &str| bytes(name).unwrap_or_default();
    Some(MemInfo {
        total: bytes("MemTotal")?,
        free: bytes("MemFree")?,
        available: bytes("MemAvailable")?,
        evictable: some("Active").saturating_add(some("Inactive")),
        mlocked: some("Mlocked"),
        hugetlb: some("Hugetlb"),
        shared: some("Shmem"),
        files: some("Active(file)").saturating_add(some("Inactive(file)")),
        mapped: some("Mapped"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_lines_of_it() {
        let text = "MemTotal:       24626992 kB\nMemFree:        21187812 kB\nMemAvailable:   23101616 kB\n";
        let three = MemInfo {
            total: 24_626_992 << 10,
            free: 21_187_812 << 10,
            available: 23_101_616 << 10,
            ..MemInfo::default()
        };
        assert_eq!(parse(text), Some(three), "what is not told is none");
        let uses = "Active: 5 kB\nInactive: 6 kB\nActive(anon): 3 kB\nMlocked: 2 kB\nShmem: 4 kB\n\
                    HugePages_Total:       1\nHugetlb:            2048 kB\n";
        let want = MemInfo {
            evictable: 11 << 10,
            mlocked: 2 << 10,
            shared: 4 << 10,
            hugetlb: 2 << 20,
            ..three
        };
        assert_eq!(parse(&format!("{text}{uses}")), Some(want));
        assert_eq!(parse("MemTotal: 5 kB\n"), None, "it tells no more");
        let machine = meminfo("/".as_ref()).unwrap();
        assert!(machine.available <= machine.total && machine.free <= machine.total);
    }
}
