//! `/sys/kernel/mm/page_idle/bitmap`: a bit for each page frame, set by us and taken back by the kernel
//! once the page is accessed, by whomever.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ProcError;

const PATH: &str = "sys/kernel/mm/page_idle/bitmap";
/// The kernel reads and writes the file by words of so many frames.
const WORD: u64 = 64;

/// The file, open for reading and writing.
#[derive(Debug)]
pub struct IdleBitmap(File);

impl IdleBitmap {
    /// Opens it.
    ///
    /// # Errors
    /// If this kernel has none (`CONFIG_IDLE_PAGE_TRACKING`), or we are not root.
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        let path = root.join(PATH);
        let bitmap = OpenOptions::new().read(true).write(true).open(&path);
        Ok(IdleBitmap(bitmap.map_err(|e| ProcError::read(&path, e))?))
    }

    /// Whether each of `frames` is idle: not accessed since it was marked. `None` stands for frames that
    /// the file does not hold: those in the last word of memory, if that is not whole. Neighbours in
    /// one word cost one read, in which the kernel asks all who map the word's idle pages.
    ///
    /// # Errors
    /// Those of reading.
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

    /// Marks `frames` as idle. Neighbours in one word cost one write.
    ///
    /// # Errors
    /// Those of writing.
    pub fn mark(&self, frames: &[u64]) -> io::Result<()> {
        for (word, frames) in words(frames) {
            let bits = frames.iter().fold(0u64, |bits, f| bits | 1 << (f % WORD));
            // Bits that are zero change nothing.
            self.0.write_at(&bits.to_ne_bytes(), word * 8)?;
        }
        Ok(())
    }
}

/// Adjacent `frames` of one word, with its number.
fn words(frames: &[u64]) -> impl Iterator<Item = (u64, &[u64])> {
    let same = frames.chunk_by(|a, b| a / WORD == b / WORD);
    same.filter_map(|frames| Some((frames.first()? / WORD, frames)))
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
        std::fs::write(&path, [0; 25]).unwrap();
        let bitmap = IdleBitmap::open(root.path()).unwrap();
        bitmap.mark(&[3, 5, 64, 130]).unwrap();
        let idle = bitmap.are_idle(&[3, 4, 5, 64, 65, 130, 192, 100_000]).unwrap();
        let [yes, no] = [Some(true), Some(false)];
        assert_eq!(idle, [yes, no, yes, yes, no, yes, None, None]);
    }
}
