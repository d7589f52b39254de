//! `/sys/kernel/mm/page_idle/bitmap`: a bit for each page frame, set by us and taken back by the kernel
//! once the page is accessed, by whomever.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ProcError;

/// The file, open for reading and writing.
#[derive(Debug)]
pub struct IdleBitmap(File);

const PATH: &str = "sys/kernel/mm/page_idle/bitmap";

impl IdleBitmap {
    /// Opens it.
    ///
    /// # Errors
    /// If this kernel has none (`CONFIG_IDLE_PAGE_TRACKING`), or we are not root.
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        let path = root.join(PATH);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(IdleBitmap(file.map_err(|e| ProcError::read(&path, e))?))
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
            match self.0.read_at(&mut bytes, at)? {
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
            self.0.write_at(&bits.to_ne_bytes(), at)?;
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
        let bitmap = IdleBitmap::open(root.path()).unwrap();
        bitmap.mark(&[3, 5, 64, 130]).unwrap();
        let idle = bitmap.are_idle(&[3, 4, 5, 64, 65, 130, 100_000]).unwrap();
        assert_eq!(idle, [true, false, true, true, false, true, false]);
    }
}
