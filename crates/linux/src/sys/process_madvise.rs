//! `process_madvise(2)`, since Linux 5.10.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use isotherm_core::AddrRange;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// Advice that the kernel accepts for another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryAdvice {
    /// clear accessed bits, and move pages to the inactive list
    Cold,
    /// reclaim pages, accessed or not
    PageOut,
    /// read pages ahead, or back from swap
    WillNeed,
    /// make huge pages, regardless of the settings of khugepaged; since Linux 6.1
    Collapse,
}

impl MemoryAdvice {
    fn raw(self) -> libc::c_int {
        match self {
            MemoryAdvice::Cold => libc::MADV_COLD,
            MemoryAdvice::PageOut => libc::MADV_PAGEOUT,
            MemoryAdvice::WillNeed => libc::MADV_WILLNEED,
            MemoryAdvice::Collapse => libc::MADV_COLLAPSE,
        }
    }
}

/// Maximum number of ranges in one call.
const MAX_RANGES: usize = 1024;

/// Gives `advice` for the first of `ranges` (at most 1024) to the process of `pidfd`. Returns the number of
/// bytes for which the kernel accepted it, counted from the first range.
///
/// # Errors
/// Those of the kernel, if it accepted no byte. They are EINVAL for locked or special memory, ENOMEM for a hole
/// (or if no huge page is available), ESRCH for a process that has ended, and EPERM without `CAP_SYS_NICE`.
pub fn process_madvise(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddrRange],
    advice: MemoryAdvice,
) -> io::Result<u64> {
    let iovecs: Vec<libc::iovec> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|r| libc::iovec {
            iov_base: r.start as usize as *mut libc::c_void,
            iov_len: usize::try_from(r.len()).unwrap_or(0),
        })
        .collect();
    // SAFETY: the kernel reads the vector, which lives until the call returns. The addresses in it belong to
    // another process and are not dereferenced in this one.
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

/// Gives `advice` for all `ranges`. Skips a range at which the kernel stops. Returns the index of each such
/// range with the kernel's error.
pub fn advise_all(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddrRange],
    advice: MemoryAdvice,
) -> Vec<(usize, io::Error)> {
    let mut failed = Vec::new();
    let mut at = 0;
    while let Some(rest) = ranges.get(at..).filter(|r| !r.is_empty()) {
        match process_madvise(pidfd, rest, advice) {
            Ok(bytes) => match whole_ranges(rest, bytes) {
                0 => failed.push((at, io::ErrorKind::InvalidInput.into())),
                // A further call from there on returns the error at which the kernel stopped.
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

/// The number of `ranges`, from the first on, that `bytes` cover completely.
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

/// Tests on this process whether the kernel accepts `advice`.
///
/// # Errors
/// ENOSYS before Linux 5.10, EINVAL for unknown advice, or the error of a sandbox.
pub fn supports_advice(advice: MemoryAdvice) -> io::Result<()> {
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
    process_madvise(pidfd.as_fd(), &[], advice).map(drop)
}
