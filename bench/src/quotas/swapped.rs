//! Memory in swap, as the kernel reports it.

use std::path::Path;

use anyhow::{Result, ensure};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_linux::proc::{self, Pagemap};

/// For each page of `range` of process `pid`, whether it is in swap, by its page tables.
pub fn pages(pid: i32, range: AddrRange) -> Result<Vec<bool>> {
    let mut map = Pagemap::open(Path::new("/"), pid)?;
    let pages: Vec<bool> = map.read(range).map(|entry| entry.is_swapped()).collect();
    ensure!(pages.len() as u64 == range.len() / PAGE_SIZE, "process {pid} has ended");
    Ok(pages)
}

/// Bytes in swap of `range`, by the page tables.
pub fn of_range(pid: i32, range: AddrRange) -> Result<u64> {
    Ok(pages(pid, range)?.iter().filter(|swapped| **swapped).count() as u64 * PAGE_SIZE)
}

/// Bytes in swap of all of the process, by the kernel's count.
pub fn of_process(pid: i32) -> Result<u64> {
    Ok(proc::swapped(Path::new("/"), pid)?)
}
