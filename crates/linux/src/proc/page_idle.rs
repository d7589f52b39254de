//! `/sys/kernel/mm/page_idle/bitmap`: a bit for each page frame, set by us and taken back by the kernel
//! once the page is accessed, by whomever.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ProcError;

/// The file, open for reading and writing.
#[derive(Debug)]
pub struct IdleBitmap {
    bitmap: File,
    flags: File,
}

const FLAGS: &str = "proc/kpageflags";
const KPF_LRU: u64 = 1 << 5;
const KPF_COMPOUND_TAIL: u64 = 1 << 16;
const KPF_NOPAGE: u64 = 1 << 20;
const KPF_ZERO_PAGE: u64 = 1 << 24;
const PATH: &str = "sys/kernel/mm/page_idle/bitmap";

impl IdleBitmap {
    /// Opens it.
    ///
    /// # Errors
    /// If this kernel has none (`CONFIG_IDLE_PAGE_TRACKING`), or we are not root.
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        let path = root.join(PATH);
        let bitmap = OpenOptions::new().read(true).write(true).open(&path);
        let bitmap = bitmap.map_err(|e| ProcError::read(&path, e))?;
        let path = root.join(FLAGS);
        let flags = File::open(&path).map_err(|e| ProcError::read(&path, e))?;
        Ok(IdleBitmap { bitmap, flags })
    }

    /// Whether the kernel tracks each of `frames`: pages on an LRU list, of a folio only the first.
    /// What it does not track never looks idle. Frame 0 stands for one that is hidden.
    ///
    /// # Errors
    /// Those of reading.
    pub fn are_tracked(&self, frames: &[u64]) -> io::Result<Vec<bool>> {
        const NOT: u64 = KPF_COMPOUND_TAIL | KPF_NOPAGE | KPF_ZERO_PAGE;
        let tracked = |&frame: &u64| {
            let mut bytes = [0; 8];
            let whole = self.flags.read_at(&mut bytes, frame * 8)? == 8;
            let flags = u64::from_ne_bytes(bytes);
            Ok(whole && frame != 0 && flags & KPF_LRU != 0 && flags & NOT == 0)
        };
        frames.iter().map(tracked).collect()
    }

    /// Whether each of `frames` is idle: not accessed since it was marked. Frames that the kernel does
    /// not track are not. Neighbours in one word of 64 cost one read.
    ///
    /// # Errors
    /// Those of reading.
    pub fn are_idle(&self, frames: &[u64]) -> io::Result<Vec<bool>> {
        let mut idle = Vec::with_capacity(frames.len());
        for word in frames.chunk_by(|a, b| a / 64 == b / 64) {
            let mut bytes = [0; 8];
            let at = word.first().map_or(0, |f| f / 64 * 8);
            match self.bitmap.read_at(&mut bytes, at)? {
                8 => {}
                _ => bytes = [0; 8],
            }
            let bits = u64::from_ne_bytes(bytes);
            idle.extend(word.iter().map(|f| bits >> (f % 64) & 1 == 1));
        }
        Ok(idle)
    }

    /// Marks `frames` as idle.
    ///
    /// # Errors
    /// Those of writing.
    pub fn mark(&self, frames: &[u64]) -> io::Result<()> {
        for word in frames.chunk_by(|a, b| a / 64 == b / 64) {
            let bits = word.iter().fold(0u64, |bits, f| bits | 1 << (f % 64));
            let at = word.first().map_or(0, |f| f / 64 * 8);
            // Bits that are zero change nothing.
            self.bitmap.write_at(&bits.to_ne_bytes(), at)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file keeps what is written, so that marks come back as they were.
    #[test]
    fn words_of_64_frames() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(PATH);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(IdleBitmap::open(root.path()).is_err());
        std::fs::write(&path, [0; 32]).unwrap();
        assert!(IdleBitmap::open(root.path()).is_err(), "no flags");
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let flags = [KPF_LRU, KPF_LRU, KPF_LRU | KPF_COMPOUND_TAIL, 0, KPF_LRU | KPF_ZERO_PAGE];
        std::fs::write(root.path().join(FLAGS), flags.map(u64::to_ne_bytes).concat()).unwrap();
        let bitmap = IdleBitmap::open(root.path()).unwrap();
        bitmap.mark(&[3, 5, 64, 130]).unwrap();
        let idle = bitmap.are_idle(&[3, 4, 5, 64, 65, 130, 100_000]).unwrap();
        assert_eq!(idle, [true, false, true, true, false, true, false]);
        let tracked = bitmap.are_tracked(&[0, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!(tracked, [false, true, false, false, false, false]);
    }
}
