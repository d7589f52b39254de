//! Room in swap.

use std::path::Path;

use crate::proc::meminfo;

/// Swap of the machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub total: u64,
    pub free: u64,
}

/// What each CPU has put by for itself is free, and not to be had: below this it is full.
const FULL: u64 = 1 << 20;

impl Room {
    /// As it is now; none if the kernel does not tell.
    pub fn read(root: &Path) -> Self {
        let told = meminfo(root);
        told.map_or(Room { total: 0, free: 0 }, |m| Room { total: m.swap_total, free: m.swap_free })
    }

    pub fn is_full(&self) -> bool {
        self.free < FULL
    }
}
