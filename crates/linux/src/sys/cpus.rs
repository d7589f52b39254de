//! How many CPUs there are.

/// CPUs that are online, at least one.
#[must_use]
pub fn online_cpus() -> u32 {
    // SAFETY: a call without memory.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(cpus).unwrap_or(1).max(1)
}
