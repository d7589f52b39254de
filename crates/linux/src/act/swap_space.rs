//! Space in swap.

use rustix::system::sysinfo;

/// Swap of the machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SwapSpace {
    pub total: u64,
    pub free: u64,
}

/// Swap with less than this free is full: each CPU reserves slots, which count as free and cannot be used.
const RESERVED: u64 = 1 << 20;

impl SwapSpace {
    /// As it is now.
    pub fn now() -> Self {
        let info = sysinfo();
        let bytes = |units: u64| units.saturating_mul(u64::from(info.mem_unit));
        SwapSpace { total: bytes(info.totalswap), free: bytes(info.freeswap) }
    }

    /// Whether so much more fits.
    pub fn has(&self, bytes: u64) -> bool {
        self.free >= bytes.max(RESERVED)
    }

    /// Whether anything can be paged out, or why not.
    pub fn check(&self) -> Result<(), String> {
        match self {
            SwapSpace { total: 0, .. } => Err("there is no swap, so anonymous memory cannot be \
                                               paged out: add swap (swapon), or make compressed \
                                               swap (isotherm system swap zram SIZE)"
                .to_owned()),
            room if !room.has(0) => Err(format!(
                "swap is full: {} KiB of {} are free. Add some (swapon)",
                room.free >> 10,
                room.total >> 10
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_that_is_missing_or_full_is_said() {
        let why =
            |total: u64, free: u64| SwapSpace { total: total << 10, free: free << 10 }.check();
        assert!(why(0, 0).unwrap_err().contains("no swap"));
        assert!(why(4096, 100).unwrap_err().contains("full: 100 KiB of 4096"));
        assert_eq!(why(4096, 4096), Ok(()));
        let room = SwapSpace { total: 8 << 20, free: 4 << 20 };
        assert!(room.has(4 << 20) && !room.has((4 << 20) + 1));
        let now = SwapSpace::now();
        assert!(now.free <= now.total);
    }
}
