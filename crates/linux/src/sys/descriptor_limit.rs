//! How many descriptors this process may have.

use rustix::process::Rlimit;

/// The limits of the number of descriptors of this process. `None` if a sandbox refuses to report them.
#[must_use]
pub fn descriptor_limit() -> Option<Rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // rustix panics if the call fails.
    // SAFETY: the kernel writes to `limit` only.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let finite = |number| (number != libc::RLIM_INFINITY).then_some(number);
    let limits = || Rlimit { current: finite(limit.rlim_cur), maximum: finite(limit.rlim_max) };
    (done == 0).then(limits)
}
