//! Swap for a test. There is one machine: whoever needs it, or needs that there is none, is alone.

use std::fs::File;

use isotherm_linux::swap::Swap;
use rustix::fs::{FlockOperation, flock};

/// Nobody else has swap meanwhile; also not in another test binary.
pub struct Alone {
    // In the order in which they are dropped.
    swap: Option<Swap>,
    _lock: File,
}

impl Alone {
    /// On a machine without swap; `None` if somebody has some.
    pub fn without_swap() -> Option<Self> {
        let path = std::env::temp_dir().join("isotherm-test-swap.lock");
        let lock = File::create(path).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
        if swaps.lines().count() > 1 {
            eprintln!("skipped: this machine has swap of its own");
            return None;
        }
        Some(Alone { swap: None, _lock: lock })
    }

    /// With swap of so many MiB; `None` if that is not to be had, which is a failure where all tests
    /// must run.
    pub fn with_swap(mib: u64) -> Option<Self> {
        let mut alone = Self::without_swap()?;
        match Swap::start(mib << 20) {
            Ok(swap) => alone.swap = Some(swap),
            Err(e) => {
                let all = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
                assert!(!all, "{e}");
                eprintln!("skipped: {e}");
                return None;
            }
        }
        Some(alone)
    }
}
