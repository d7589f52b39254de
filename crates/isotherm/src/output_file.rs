//! Output files, which replace an existing file only when they are complete.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
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
    /// written next to its path until it is complete
    Temporary(NamedTempFile, PathBuf),
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
        let (place, there) = match existing(path).map_err(cannot)? {
            Some((place, there)) => (place, Some(there)),
            None => (path.to_owned(), None),
        };
        if there.as_ref().is_some_and(|m| !m.is_file()) {
            return Ok(OutputFile::Direct(File::create(path).map_err(cannot)?));
        }
        let dir = place.parent().filter(|dir| !dir.as_os_str().is_empty());
        let mode = there.as_ref().map_or(0o666, |m| m.permissions().mode() & 0o777);
        match (temporary_in(dir.unwrap_or(Path::new(".")), mode), there) {
            // The permissions of the existing file decide whether it may be written.
            (Ok(file), Some(_)) => {
                OpenOptions::new().write(true).open(&place).map_err(cannot)?;
                Ok(OutputFile::Temporary(file, place))
            }
            (Ok(file), None) => Ok(OutputFile::Temporary(file, place)),
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
            OutputFile::Temporary(file, path) => file.persist(path).map(drop).map_err(|e| e.error),
            OutputFile::Direct(_) => Ok(()),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            OutputFile::Temporary(file, _) => file.as_file_mut(),
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

/// A temporary file. Its errors do not name it: those of [`tempfile::Builder::tempfile_in`] have its path.
pub(crate) fn temporary_in(dir: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let create = |path: &Path| {
        OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
    };
    tempfile::Builder::new().prefix(".isotherm.").make_in(dir, create)
}

/// The place and the kind of an existing file. The kernel follows links to it, so that it can refuse those that
/// others have put into `/tmp` (`fs.protected_symlinks`).
fn existing(path: &Path) -> io::Result<Option<(PathBuf, Metadata)>> {
    let flags = OFlags::PATH.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let is = file.metadata()?;
    // A file that was removed has no place.
    let is_at = |place: &PathBuf| {
        place.symlink_metadata().is_ok_and(|m| (m.dev(), m.ino()) == (is.dev(), is.ino()))
    };
    let place = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok().filter(is_at);
    Ok(Some((place.unwrap_or_else(|| path.to_owned()), is)))
}

/// A writer that keeps the first error of writing.
pub struct FirstError<W> {
    out: W,
    /// the error
    pub error: Option<io::Error>,
}

impl<W: Write> FirstError<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        FirstError { out, error: None }
    }

    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| {
            let kind = e.kind();
            if kind != ErrorKind::Interrupted {
                self.error.get_or_insert(e);
            }
            kind.into()
        })
    }
}

impl<W: Write> Write for FirstError<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.note(result)
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn write(path: &Path) -> Result<(), OutputError> {
        let mut file = OutputFile::create(path)?;
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        Ok(())
    }

    /// Found by an audit: the name that a link holds was followed, not the link.
    #[test]
    fn the_kernel_follows_the_links_to_an_output() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a");
        let opened = File::create_new(&place).unwrap();
        fs::remove_file(&place).unwrap();
        // This is what the link below holds.
        let other = dir.path().join("a (deleted)");
        fs::write(&other, "old").unwrap();
        write(Path::new(&format!("/proc/self/fd/{}", opened.as_raw_fd()))).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"old");
        assert_eq!(opened.metadata().unwrap().len(), 3);
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let [link, place] = ["link", "place"].map(|name| dir.path().join(name));
        fs::write(&place, "old").unwrap();
        symlink("place", &link).unwrap();
        write(&link).unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"new");
        assert!(link.is_symlink());
    }

    /// Found by a trial: the error had the name of the temporary file.
    #[test]
    fn an_error_has_the_name_of_the_output_only() {
        let dir = tempfile::tempdir().unwrap();
        let Err(OutputError::Write { source, .. }) = OutputFile::create(&dir.path().join("no/a"))
        else {
            panic!("there is no such folder");
        };
        assert_eq!(source.raw_os_error(), Some(2), "{source}");
    }

    /// The setting is one of the machine, so the test does not change it.
    #[test]
    fn a_link_of_another_user_in_tmp_is_refused() {
        let protects = fs::read_to_string("/proc/sys/fs/protected_symlinks").unwrap();
        if !rustix::process::geteuid().is_root() || protects.trim() != "1" {
            eprintln!("skipped: it requires root, and fs.protected_symlinks = 1");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        let [link, place] = ["link", "place"].map(|name| dir.path().join(name));
        fs::write(&place, "old").unwrap();
        symlink(&place, &link).unwrap();
        lchown(&link, Some(65534), Some(65534)).unwrap();
        assert!(matches!(write(&link), Err(OutputError::Write { .. })));
        assert_eq!(fs::read(&place).unwrap(), b"old");
    }
}
