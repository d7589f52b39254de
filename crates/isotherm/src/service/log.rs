//! The log of actions.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
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
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file =
            file.map_err(|source| ServiceError::OpenLog { path: path.to_owned(), source })?;
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
