//! The number of CPUs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use isotherm_core::Nanos;

use super::monotonic;

/// CPUs come and go only by hand, and the C library reads a file to count them.
const COUNTED_EVERY: Duration = Duration::from_secs(10);

/// The number of online CPUs, at least one. At most 10 s old.
#[must_use]
pub fn online_cpus() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    let now = monotonic();
    if COUNT.load(Relaxed) == 0 || now.since(Nanos(COUNTED.load(Relaxed))) >= COUNTED_EVERY {
        COUNT.store(count(), Relaxed);
        COUNTED.store(now.0, Relaxed);
    }
    COUNT.load(Relaxed)
}

fn count() -> u32 {
    // SAFETY: the call accesses no memory.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(cpus).unwrap_or(1).max(1)
}
