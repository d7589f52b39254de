//! The ring that the kernel writes the samples of one CPU into.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use isotherm_core::PAGE_SIZE;
use perf_event_open_sys::bindings::{perf_event_header, perf_event_mmap_page};

const PAGE: usize = PAGE_SIZE as usize;
const HEADER: usize = size_of::<perf_event_header>();

/// A mapped ring.
pub(super) struct Ring {
    event: OwnedFd,
    base: NonNull<u8>,
    /// bytes of the data area
    len: usize,
    /// bytes read so far
    tail: u64,
    /// a record that continues at the begin of the ring, copied together
    joined: Vec<u8>,
}

impl Ring {
    /// Maps the ring of `event` with this number of data pages, a power of two.
    pub(super) fn map(event: OwnedFd, pages: usize) -> io::Result<Self> {
        let len = pages * PAGE;
        // SAFETY: a new mapping at an address that the kernel chooses changes no other memory.
        let base = unsafe {
            libc::mmap(
                null_mut(),
                PAGE + len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Ring { event, base, len, tail: 0, joined: Vec::new() })
    }

    /// The event that owns the ring.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Passes each new record to `take`: its type, its `misc` bits, and its content.
    pub(super) fn drain(&mut self, mut take: impl FnMut(u32, u16, &[u8])) {
        let page = self.base.cast::<perf_event_mmap_page>().as_ptr();
        // SAFETY: the first page of the mapping is a perf_event_mmap_page, whose aligned fields data_head and
        // data_tail are shared with the kernel and accessed only atomically.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let head = head.load(Ordering::Acquire);
        // SAFETY: the data area has `len` bytes after the first page. The kernel does not write what lies
        // between the tail and the head, and nothing else is read.
        let data = unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(PAGE), self.len) };
        while self.tail < head {
            let at = usize::try_from(self.tail % self.len as u64).unwrap_or(0);
            let Some((kind, misc, size)) = data.get(at..).and_then(header) else { break };
            let wraps = (at + size).saturating_sub(self.len);
            let record = if wraps == 0 {
                data.get(at..at + size)
            } else {
                self.joined.clear();
                self.joined.extend_from_slice(data.get(at..).unwrap_or_default());
                self.joined.extend_from_slice(data.get(..wraps).unwrap_or_default());
                Some(self.joined.as_slice())
            };
            take(kind, misc, record.and_then(|r| r.get(HEADER..)).unwrap_or_default());
            self.tail += size as u64;
        }
        tail.store(self.tail, Ordering::Release);
    }
}

/// The type, the `misc` bits and the size of the record at the begin of `data`. Records are 8-byte aligned, so
/// that a header never wraps around.
fn header(data: &[u8]) -> Option<(u32, u16, usize)> {
    let (kind, rest) = data.split_first_chunk()?;
    let (misc, rest) = rest.split_first_chunk()?;
    let (size, _) = rest.split_first_chunk()?;
    let size = usize::from(u16::from_ne_bytes(*size));
    (size >= HEADER).then(|| (u32::from_ne_bytes(*kind), u16::from_ne_bytes(*misc), size))
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value alone, and ends with it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE + self.len) };
    }
}
