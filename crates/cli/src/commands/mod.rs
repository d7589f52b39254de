//! The commands, one file for each.

pub mod doctor;
pub mod edit;
pub mod export;
pub mod files;
pub mod import;
pub mod interleave;
pub mod lab;
mod line;
pub mod need;
pub mod now;
pub mod reclaim;
pub mod record;
pub mod report;
pub mod run;
pub mod service;
pub mod swap;
pub mod system;
pub mod top;
pub mod web;
pub mod whatif;
pub mod workload;
pub mod zones;

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, IsTerminal, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use isotherm_record::{Lost, ReadError, Reader};
use tempfile::NamedTempFile;

use crate::cli::{Input, UsageError};

/// Opens a record. If there is none, the error says how to record one.
fn open(input: &Input) -> Result<Reader> {
    let reader = if input.path == Path::new("-") {
        Reader::new(standard_input()?, Path::new("on standard input"))
    } else {
        Reader::open(&input.path)
    };
    let reader = reader.map_err(|e| {
        let missing =
            matches!(&e, ReadError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
        let text = if missing {
            format!(
                "{e}; record one first (isotherm record -o {} ...), or give the path of another record",
                input.path.display()
            )
        } else {
            e.to_string()
        };
        anyhow::Error::from(e).context(text)
    })?;
    Ok(if input.skip_damaged { reader.skip_damaged() } else { reader })
}

/// The missing parts of a damaged record, as text.
fn lost_text(lost: &Lost) -> String {
    format!(
        "the record is damaged: {} snapshot{} missing, as {} bytes in {} place{} cannot be read",
        lost.snapshots,
        if lost.snapshots == 1 { " is" } else { "s are" },
        lost.bytes,
        lost.places,
        if lost.places == 1 { "" } else { "s" },
    )
}

/// Standard input, from its beginning. It is copied to a file without a name, because most reports
/// read a record more than once.
fn standard_input() -> Result<File> {
    static STDIN_COPY: Mutex<Option<File>> = Mutex::new(None);
    let mut kept = STDIN_COPY.lock().unwrap_or_else(PoisonError::into_inner);
    let file = match kept.take() {
        Some(file) => file,
        None => {
            let mut input = std::io::stdin().lock();
            if input.is_terminal() {
                let text = "standard input is a terminal: give -i FILE, or pipe a record into \
                            this command";
                return Err(UsageError::new(text).into());
            }
            let mut file =
                tempfile::tempfile().context("cannot copy standard input to a temporary file")?;
            std::io::copy(&mut input, &mut file).context("cannot read standard input")?;
            file
        }
    };
    let mut again = file.try_clone().context("cannot copy standard input to a temporary file")?;
    *kept = Some(file);
    again.rewind().context("cannot read the copy of standard input again")?;
    Ok(again)
}

/// A file that is being written. A regular file is moved into place when it is complete. Until
/// then, and after a failure, the previous file stays.
enum Output {
    Aside(NamedTempFile, PathBuf),
    /// a device or a pipe, or a file in a directory in which no file can be created
    Direct(File),
}

impl Output {
    /// Creates a file with the permissions of the existing file, else those of the umask.
    fn create(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        // A link stays a link.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let there = place.metadata().ok();
        if there.as_ref().is_some_and(|m| !m.is_file()) {
            return Ok(Output::Direct(File::create(path).with_context(cannot)?));
        }
        let dir = place.parent().filter(|dir| !dir.as_os_str().is_empty());
        let mode = there.as_ref().map_or(0o666, |m| m.permissions().mode() & 0o777);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".isotherm.").permissions(Permissions::from_mode(mode));
        match (builder.tempfile_in(dir.unwrap_or(Path::new("."))), there) {
            // The permissions of the existing file decide whether it may be written.
            (Ok(file), Some(_)) => {
                OpenOptions::new().write(true).open(&place).with_context(cannot)?;
                Ok(Output::Aside(file, place))
            }
            (Ok(file), None) => Ok(Output::Aside(file, place)),
            (Err(_), Some(_)) => Ok(Output::Direct(File::create(path).with_context(cannot)?)),
            (Err(e), None) => Err(e).with_context(cannot),
        }
    }

    /// Moves the file into place.
    fn finish(mut self) -> std::io::Result<()> {
        self.flush()?;
        match self {
            Output::Aside(file, path) => file.persist(path).map(drop).map_err(|e| e.error),
            Output::Direct(_) => Ok(()),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            Output::Aside(file, _) => file.as_file_mut(),
            Output::Direct(file) => file,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file().flush()
    }
}

/// Creates the output file. Fails if it is the record that is being read.
fn create(output: &Path, input: &Path) -> Result<Output> {
    keep_input(output, input)?;
    Output::create(output)
}

/// Fails if the output would replace the record that is being read.
fn keep_input(output: &Path, input: &Path) -> Result<(), UsageError> {
    let inode = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    if inode(output).is_some_and(|o| inode(input) == Some(o)) {
        let text =
            format!("{} is the record itself: choose another name to write to", output.display());
        return Err(UsageError::new(text));
    }
    Ok(())
}
