//! Touches pages of another process, by `process_vm_readv(2)`.

use std::io;

/// Maximum number of pages in one call (`UIO_MAXIOV`).
const MAX_TOUCHES: usize = 1024;

/// Reads a byte of each of `pages`, which counts as an access by the process itself. Returns the number of
/// pages that could be read.
///
/// # Errors
/// ESRCH if there is no such process, EPERM if its memory may not be read.
pub fn touch(pid: i32, pages: &[u64]) -> io::Result<u64> {
    let mut read = 0;
    for part in pages.chunks(MAX_TOUCHES) {
        let mut rest = part;
        while !rest.is_empty() {
            let got = match read_bytes(pid, rest) {
                Ok(got) => got.min(rest.len()),
                Err(e) if e.raw_os_error() == Some(libc::EFAULT) => 0,
                Err(e) => return Err(e),
            };
            read += got as u64;
            // The call stops at a page that does not exist.
            rest = rest.get(got.max(1)..).unwrap_or_default();
        }
    }
    Ok(read)
}

/// Whether this process may read memory of others by this call.
///
/// # Errors
/// ENOSYS on a kernel without `CONFIG_CROSS_MEMORY_ATTACH`, or the error of a sandbox.
pub fn probe_touch() -> io::Result<()> {
    let own = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    read_bytes(own, &[]).map(drop)
}

fn read_bytes(pid: i32, pages: &[u64]) -> io::Result<usize> {
    let mut bytes = [0u8; MAX_TOUCHES];
    let local =
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: pages.len().min(MAX_TOUCHES) };
    let remote: Vec<libc::iovec> = pages
        .iter()
        .take(MAX_TOUCHES)
        .map(|&page| libc::iovec { iov_base: page as usize as *mut libc::c_void, iov_len: 1 })
        .collect();
    // SAFETY: the kernel writes at most as many bytes as `local` states, which `bytes` has. Both live until
    // the call returns. The other addresses belong to the other process.
    let n = unsafe {
        libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as u64, 0)
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::OwnPages;
    use crate::walker::own_pid;

    #[test]
    fn mapped_pages_are_read_and_unmapped_ones_skipped() {
        let mut own = OwnPages::map(3000).unwrap();
        (0..3000).for_each(|page| own.write(page, page));
        let mut pages: Vec<u64> = (0..3000).map(|page| own.range(page, 1).start).collect();
        assert_eq!(touch(own_pid(), &pages).unwrap(), 3000);
        (pages[0], pages[1500], pages[2999]) = (4096, 4096, 4096);
        assert_eq!(touch(own_pid(), &pages).unwrap(), 2997);
        assert_eq!(touch(i32::MAX, &pages).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(touch(own_pid(), &[]).unwrap(), 0);
        probe_touch().unwrap();
    }
}
