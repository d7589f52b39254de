//! Swap for a test. A machine has one set of swap devices, so a test that needs swap, or needs none, runs
//! alone.

use std::fs::File;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use isotherm_linux::swap::{Swap, restore_left};
use rustix::fs::{FlockOperation, flock};

/// While this exists, no other test has swap, in any test binary.
pub struct Alone {
    // In the order in which they are dropped.
    swap: Option<Swap>,
    _lock: File,
}

impl Alone {
    /// A machine without swap. `None` if there is swap of others. If all tests must run, that is a failure.
    /// It is waited for first, because the swap may be that of another test or measurement.
    pub fn without_swap() -> Option<Self> {
        let path = std::env::temp_dir().join("isotherm-test-swap.lock");
        let lock = File::create(path).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let all = all_must_run();
        // Swap of a killed test or measurement has no user.
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

    /// A machine with `mib` MiB of swap. `None` if that is not available, which is a failure if all tests
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

/// Until then others may have swap. All tests of a binary together wait no longer than one of them would.
static BY: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_secs(120));

/// Whether there is any swap.
pub fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1
}

fn all_must_run() -> bool {
    std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some()
}
