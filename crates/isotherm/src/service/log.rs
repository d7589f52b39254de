//! The log of what was done.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::event::LogLine;
use crate::words::chain;

/// JSON lines, added to a file.
pub struct Log {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Log {
    /// At the end of the file, which its owner alone may read.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
        Ok(Log { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// Adds lines, and has the kernel have them. What is done without being logged is not what was asked
    /// for: an error ends the run.
    pub fn write(&mut self, lines: &[LogLine<'_>]) -> Result<()> {
        // As text: a pipe that is closed is that of the log, not standard output.
        self.try_write(lines).map_err(|e| {
            let name = self.path.display();
            anyhow!(
                "the log {name} cannot be written, and nothing is done that is not in it: make room, \
                 or run without --log: {}",
                chain(&e),
            )
        })
    }

    fn try_write(&mut self, lines: &[LogLine<'_>]) -> Result<()> {
        for line in lines {
            serde_json::to_writer(&mut self.file, line)?;
            self.file.write_all(b"\n")?;
        }
        Ok(self.file.flush()?)
    }
}
