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
    /// reclaim, accessed or not
    PageOut,
    /// read ahead, or back from swap
    WillNeed,
    /// make huge pages, whatever khugepaged thinks of it; since Linux 6.1
    Collapse,
}

impl Advice {
    fn raw(self) -> libc::c_int {
        match self {
            Advice::Cold => libc::MADV_COLD,
            Advice::PageOut => libc::MADV_PAGEOUT,
            Advice::WillNeed => libc::MADV_WILLNEED,
            Advice::Collapse => libc::MADV_COLLAPSE,
        }
    }
}

/// Most ranges in one call.
const MAX_RANGES: usize = 1024;

/// Gives `advice` on the first of `ranges` (at most 1024) to the process behind `pidfd`; returns
/// how many bytes it was taken for, counted from the first range on.
///
/// # Errors
/// The kernel's, if it was taken for none: EINVAL for locked or special memory, ENOMEM for a hole (or for
/// want of a huge page), ESRCH for a process that ended, EPERM without `CAP_SYS_NICE`.
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

/// Gives `advice` on all `ranges`; a bad one stops the kernel and is skipped. Returns the index of each bad
/// one, with the kernel's reason.
pub fn advise_all(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddrRange],
    advice: Advice,
) -> Vec<(usize, io::Error)> {
    let mut failed = Vec::new();
    let mut at = 0;
    while let Some(rest) = ranges.get(at..).filter(|r| !r.is_empty()) {
        match process_madvise(pidfd, rest, advice) {
            Ok(bytes) => match whole_ranges(rest, bytes) {
                0 => failed.push((at, io::ErrorKind::InvalidInput.into())),
                // Asked again from there on, it says why it stopped.
                taken => {
                    at += taken;
                    continue;
                }
            },
            Err(e) => failed.push((at, e)),
        }
        at += 1;
    }
    failed
}

/// How many of `ranges`, from the first on, `bytes` cover whole.
fn whole_ranges(ranges: &[AddrRange], bytes: u64) -> usize {
    let mut sum = 0;
    ranges
        .iter()
        .take_while(|r| {
            sum += r.len();
            sum <= bytes
        })
        .count()
}

/// Tries whether the kernel takes `advice`, on ourselves.
///
/// # Errors
/// ENOSYS before Linux 5.10, EINVAL for advice that it does not know, or that of a sandbox.
pub fn takes_advice(advice: Advice) -> io::Result<()> {
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
    process_madvise(pidfd.as_fd(), &[], advice).map(drop)
}
