//! Swap for a test. There is one machine: whoever needs it, or needs that there is none, is alone.

use std::fs::File;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use isotherm_linux::swap::{Swap, restore_left};
use rustix::fs::{FlockOperation, flock};

/// Nobody else has swap meanwhile; also not in another test binary.
pub struct Alone {
    // In the order in which they are dropped.
    swap: Option<Swap>,
    _lock: File,
}

impl Alone {
    /// On a machine without swap; `None` if somebody has some, which is a failure where all tests must
    /// run: there it is waited for first, as it may be that of a test or a measurement beside this one.
    pub fn without_swap() -> Option<Self> {
        let path = std::env::temp_dir().join("isotherm-test-swap.lock");
        let lock = File::create(path).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let all = all_must_run();
        // That of a test or a measurement that was killed is in nobody's use.
        if has_swap() {
            let _ = restore_left(Path::new("/"));
        }
        while has_swap() {
            assert!(!all || Instant::now() < *BY, "this takes a machine without swap of its own");
            if !all {
                eprintln!("skipped: this machine has swap of its own");
                return None;
            }
            std::thread::sleep(Duration::from_millis(200));
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
                assert!(!all_must_run(), "{e}");
                eprintln!("skipped: {e}");
                return None;
            }
        }
        Some(alone)
    }
}

/// Until then somebody else may have swap: all tests of a binary wait for no longer than one would.
static BY: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_secs(120));

/// Whether there is swap, whose ever it is.
pub fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1
}

fn all_must_run() -> bool {
    std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some()
}
