//! `swapon(2)` and `swapoff(2)`.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `SWAP_FLAG_PREFER` of `include/linux/swap.h`: a priority follows.
const PREFER: libc::c_int = 0x8000;
/// The highest priority.
const HIGHEST: libc::c_int = 0x7fff;

/// Swaps to a device, with a higher priority than all other swap.
///
/// # Errors
/// EINVAL if the device has no swap header, EBUSY if it is in use, EPERM without `CAP_SYS_ADMIN`.
pub fn swap_on(device: &Path) -> io::Result<()> {
    let path = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: the kernel reads the path, which lives until the call returns.
    done(unsafe { libc::swapon(path.as_ptr(), PREFER | HIGHEST) })
}

/// Reads the content of a swap device back into memory, and stops swapping to it.
///
/// # Errors
/// EINVAL if it is not in use as swap, ENOMEM if its content does not fit in memory, EPERM without
/// `CAP_SYS_ADMIN`.
pub fn swap_off(device: &Path) -> io::Result<()> {
    let path = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: as above.
    done(unsafe { libc::swapoff(path.as_ptr()) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_swap_is_refused() {
        for path in ["/nowhere", "/dev/null"] {
            assert!(swap_on(path.as_ref()).is_err() && swap_off(path.as_ref()).is_err(), "{path}");
        }
        assert!(swap_on("a\0b".as_ref()).is_err());
    }
}
