//! `/proc/kpageflags`: what the kernel uses a page frame for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ProcError;

const KPF_LRU: u64 = 1 << 5;
const KPF_BUDDY: u64 = 1 << 10;
const KPF_NOPAGE: u64 = 1 << 20;
const KPF_OFFLINE: u64 = 1 << 23;

/// What a page frame is used for, as far as accesses go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameUse {
    /// by processes or the page cache: on an LRU list
    Lru,
    /// by the kernel or a driver
    Kernel,
    /// free, or no memory
    Free,
}

/// The open file.
#[derive(Debug)]
pub struct FrameUses(File);

impl FrameUses {
    /// Opens it.
    ///
    /// # Errors
    /// If there is none (`CONFIG_PROC_PAGE_MONITOR`), or we are not root.
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        let path = root.join("proc/kpageflags");
        File::open(&path).map(FrameUses).map_err(|e| ProcError::read(&path, e))
    }

    /// Of page frame `frame`; one that cannot be read is free.
    #[must_use]
    pub fn of(&self, frame: u64) -> FrameUse {
        let mut bytes = [0; 8];
        match self.0.read_at(&mut bytes, frame.saturating_mul(8)) {
            Ok(8) => sort(u64::from_ne_bytes(bytes)),
            _ => FrameUse::Free,
        }
    }
}

fn sort(flags: u64) -> FrameUse {
    if flags & (KPF_BUDDY | KPF_NOPAGE | KPF_OFFLINE) != 0 {
        FrameUse::Free
    } else if flags & KPF_LRU != 0 {
        FrameUse::Lru
    } else {
        FrameUse::Kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let flags = [KPF_LRU, KPF_BUDDY, 1 << 7, KPF_NOPAGE, 0].map(u64::to_ne_bytes).concat();
        std::fs::write(root.path().join("proc/kpageflags"), flags).unwrap();
        let uses = FrameUses::open(root.path()).unwrap();
        use FrameUse::{Free, Kernel, Lru};
        let found: Vec<_> = (0..6).map(|frame| uses.of(frame)).collect();
        assert_eq!(
            found,
            [Lru, Free, Kernel, Free, Kernel, Free],
            "the last one is behind the end"
        );
    }
}
