//! Transient failures.

use std::io;

/// Whether the same call may succeed a little later without a remedy: the machine or isotherm itself was
/// short of memory or descriptors, or was interrupted.
pub(crate) fn is_transient(e: &io::Error) -> bool {
    use libc::{EAGAIN, EBUSY, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    let passing = [ENOMEM, EAGAIN, EINTR, EMFILE, ENFILE, EBUSY, ENOBUFS];
    e.raw_os_error().is_some_and(|errno| passing.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_passes_and_a_refusal_does_not() {
        let passes = |errno| is_transient(&io::Error::from_raw_os_error(errno));
        assert!([libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EINTR].into_iter().all(passes));
        assert!(![libc::ESRCH, libc::EPERM, libc::EACCES, libc::EIO].into_iter().any(passes));
    }
}
