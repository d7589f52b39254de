//! The log of actions.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ServiceError;
use crate::words::chain;

/// A file to which JSON lines are appended.
pub struct Log {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Log {
    /// Opens the file to append. A new file is readable by its owner only.
    pub fn open(path: &Path) -> Result<Self, ServiceError> {
        let failed = |source| ServiceError::OpenLog { path: path.to_owned(), source };
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let mut file = file.map_err(failed)?;
        // Where the disk was full, an earlier service has written a part of a line.
        let is_file = file.metadata().is_ok_and(|m| m.is_file() && m.len() > 0);
        if is_file && last_byte(path).is_ok_and(|last| last != b'\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Log { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// Appends lines and passes them to the kernel at once. An error ends the run, because no action may remain
    /// unlogged.
    pub fn write(&mut self, lines: &[impl Serialize]) -> Result<(), ServiceError> {
        self.try_write(lines)
            .map_err(|e| ServiceError::Log { path: self.path.clone(), why: chain(&e) })
    }

    fn try_write(&mut self, lines: &[impl Serialize]) -> io::Result<()> {
        for line in lines {
            serde_json::to_writer(&mut self.file, line)?;
            self.file.write_all(b"\n")?;
        }
        self.file.flush()
    }
}

fn last_byte(path: &Path) -> io::Result<u8> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by an audit: the next line continued it, and was lost with it.
    #[test]
    fn a_line_that_was_cut_ends_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (before, after) in [("", "1\n"), ("{\"a", "{\"a\n1\n"), ("0\n", "0\n1\n")] {
            std::fs::write(&path, before).unwrap();
            Log::open(&path).unwrap().write(&[1]).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }
}
