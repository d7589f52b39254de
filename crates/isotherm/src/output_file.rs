//! Output files, which replace an existing file only when they are complete.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::usage::UsageError;

/// Failures of creating an output file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// it cannot be written
    #[error("cannot write {}", path.display())]
    Write {
        /// its path
        path: PathBuf,
        /// the error of the operating system
        source: io::Error,
    },
    /// it is the record that is being read
    #[error("{0}")]
    Usage(#[from] UsageError),
}

/// A file that is being written. A regular file is moved into place when it is complete. Until
/// then, and after a failure, the previous file stays.
#[derive(Debug)]
pub enum OutputFile {
    /// written beside its path until it is complete
    Aside(NamedTempFile, PathBuf),
    /// a device or a pipe, or a file in a directory in which no file can be created
    Direct(File),
}

impl OutputFile {
    /// Creates a file with the permissions of the existing file, else those of the umask.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let cannot = |source| OutputError::Write { path: path.to_owned(), source };
        // A link stays a link.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let there = place.metadata().ok();
        if there.as_ref().is_some_and(|m| !m.is_file()) {
            return Ok(OutputFile::Direct(File::create(path).map_err(cannot)?));
        }
        let dir = place.parent().filter(|dir| !dir.as_os_str().is_empty());
        let mode = there.as_ref().map_or(0o666, |m| m.permissions().mode() & 0o777);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".isotherm.").permissions(Permissions::from_mode(mode));
        match (builder.tempfile_in(dir.unwrap_or(Path::new("."))), there) {
            // The permissions of the existing file decide whether it may be written.
            (Ok(file), Some(_)) => {
                OpenOptions::new().write(true).open(&place).map_err(cannot)?;
                Ok(OutputFile::Aside(file, place))
            }
            (Ok(file), None) => Ok(OutputFile::Aside(file, place)),
            (Err(_), Some(_)) => Ok(OutputFile::Direct(File::create(path).map_err(cannot)?)),
            (Err(e), None) => Err(cannot(e)),
        }
    }

    /// Moves the file into place.
    ///
    /// # Errors
    /// If it cannot be written or moved.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        match self {
            OutputFile::Aside(file, path) => file.persist(path).map(drop).map_err(|e| e.error),
            OutputFile::Direct(_) => Ok(()),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            OutputFile::Aside(file, _) => file.as_file_mut(),
            OutputFile::Direct(file) => file,
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// Creates the output file. Fails if it is the record that is being read.
///
/// # Errors
/// If it cannot be written, or is that record.
pub fn create(output: &Path, input: &Path) -> Result<OutputFile, OutputError> {
    keep_input(output, input)?;
    OutputFile::create(output)
}

/// Checks that the output does not replace the record that is being read.
///
/// # Errors
/// If it would.
pub fn keep_input(output: &Path, input: &Path) -> Result<(), UsageError> {
    let inode = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    if inode(output).is_some_and(|o| inode(input) == Some(o)) {
        let text =
            format!("{} is the record itself: choose another name to write to", output.display());
        return Err(UsageError::new(text));
    }
    Ok(())
}
