//! `/sys/kernel/mm/page_idle/bitmap`: one bit per page frame. isotherm sets it, and the kernel clears it when
//! any process accesses the page.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ProcError;

const PATH: &str = "sys/kernel/mm/page_idle/bitmap";
/// The kernel reads and writes the file in words of this many frames.
const WORD: u64 = 64;

/// The file, open for reading and writing.
#[derive(Debug)]
pub struct IdleBitmap(File);

impl IdleBitmap {
    /// Opens the file.
    ///
    /// # Errors
    /// If this kernel does not have it (`CONFIG_IDLE_PAGE_TRACKING`), or this process is not root.
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        let path = root.join(PATH);
        let bitmap = OpenOptions::new().read(true).write(true).open(&path);
        Ok(IdleBitmap(bitmap.map_err(|e| ProcError::read(&path, e))?))
    }

    /// Whether each of `frames` is idle: not accessed since it was marked. `None` for frames that the file
    /// does not contain: those in the last word of memory, if that is incomplete. Adjacent frames in one word
    /// need one read, in which the kernel checks all processes that map the word's idle pages.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn are_idle(&self, frames: &[u64]) -> io::Result<Vec<Option<bool>>> {
        let mut idle = Vec::with_capacity(frames.len());
        for (word, frames) in words(frames) {
            let mut bytes = [0; 8];
            let whole = self.0.read_at(&mut bytes, word * 8)? == bytes.len();
            let bits = u64::from_ne_bytes(bytes);
            idle.extend(frames.iter().map(|f| whole.then_some(bits >> (f % WORD) & 1 == 1)));
        }
        Ok(idle)
    }

    /// Marks `frames` as idle. Adjacent frames in one word need one write.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn mark(&self, frames: &[u64]) -> io::Result<()> {
        for (word, frames) in words(frames) {
            let bits = frames.iter().fold(0u64, |bits, f| bits | 1 << (f % WORD));
            // Zero bits change nothing.
            self.0.write_at(&bits.to_ne_bytes(), word * 8)?;
        }
        Ok(())
    }
}

/// The adjacent `frames` of each word, with the number of the word.
fn words(frames: &[u64]) -> impl Iterator<Item = (u64, &[u64])> {
    let same = frames.chunk_by(|a, b| a / WORD == b / WORD);
    same.filter_map(|frames| Some((frames.first()? / WORD, frames)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain file keeps the written bits, so marks stay unchanged.
    #[test]
    fn words_of_64_frames() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(PATH);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(IdleBitmap::open(root.path()).is_err());
        std::fs::write(&path, [0; 25]).unwrap();
        let bitmap = IdleBitmap::open(root.path()).unwrap();
        bitmap.mark(&[3, 5, 64, 130]).unwrap();
        let idle = bitmap.are_idle(&[3, 4, 5, 64, 65, 130, 192, 100_000]).unwrap();
        let [yes, no] = [Some(true), Some(false)];
        assert_eq!(idle, [yes, no, yes, yes, no, yes, None, None]);
    }
}
