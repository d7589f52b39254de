//! `process_madvise(2)`, since Linux 5.10.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use isotherm_core::AddrRange;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// Advice that the kernel takes for another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// clear accessed bits and move to the inactive list
    Cold,
}

impl Advice {
    fn raw(self) -> libc::c_int {
        match self {
            Advice::Cold => libc::MADV_COLD,
        }
    }
}

/// Most ranges in one call.
const MAX_RANGES: usize = 1024;

/// Gives `advice` on the first of `ranges` (at most 1024) to the process behind `pidfd`; returns
/// how many bytes it was taken for, counted from the first range on.
///
/// # Errors
/// The kernel's, if it was taken for none: EINVAL for locked or special memory, ENOMEM for a hole,
/// ESRCH for a process that ended, EPERM without `CAP_SYS_NICE`.
pub fn process_madvise(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddrRange],
    advice: Advice,
) -> io::Result<u64> {
    let iovecs: Vec<libc::iovec> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|r| libc::iovec {
            iov_base: r.start as usize as *mut libc::c_void,
            iov_len: usize::try_from(r.len()).unwrap_or(0),
        })
        .collect();
    // SAFETY: the kernel reads the vector, which lives until the call returns; the addresses in it
    // are of another process and are not followed in this one.
    let n = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            iovecs.as_ptr(),
            iovecs.len(),
            advice.raw(),
            0,
        )
    };
    u64::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Tries whether the kernel takes the advice by which accessed bits are cleared, on ourselves.
///
/// # Errors
/// ENOSYS before Linux 5.10, or that of a sandbox.
pub fn clears_by_advice() -> io::Result<()> {
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
    process_madvise(pidfd.as_fd(), &[], Advice::Cold).map(drop)
}
