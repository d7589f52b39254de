//! The log of actions.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use crate::words::chain;

/// A file to which JSON lines are appended.
pub struct Log {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Log {
    /// Opens the file to append. A new file is readable by its owner only.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
        Ok(Log { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// Appends lines and passes them to the kernel at once. An error ends the run, because no action may remain
    /// unlogged.
    pub fn write(&mut self, lines: &[impl Serialize]) -> Result<()> {
        // The error is converted to text, because a closed pipe here is the log's, not standard output's.
        self.try_write(lines).map_err(|e| {
            let name = self.path.display();
            anyhow!(
                "the log {name} cannot be written, and isotherm does only what it can log: make \
                 room, or run without --log: {}",
                chain(&e),
            )
        })
    }

    fn try_write(&mut self, lines: &[impl Serialize]) -> Result<()> {
        for line in lines {
            serde_json::to_writer(&mut self.file, line)?;
            self.file.write_all(b"\n")?;
        }
        Ok(self.file.flush()?)
    }
}
