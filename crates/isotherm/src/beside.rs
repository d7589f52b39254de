//! Files next to the control socket, which one service leaves for the next one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::text_file::ignore_missing;

/// Failures of reading such a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it belongs to user {0}, not to the user of the service")]
    Foreign(u32),
    #[error("it has more than {0} bytes")]
    TooLong(u64),
    #[error("its contents are invalid")]
    Contents(#[source] serde_json::Error),
}

/// A JSON file next to the socket, with the socket's name and an ending. It is always replaced as a whole.
pub struct StateFile {
    pub path: PathBuf,
    /// maximum size in bytes
    max_bytes: u64,
}

impl StateFile {
    /// `control.sock.state.json` for `control.sock` and `state`.
    pub fn new(socket: &Path, ending: &str, max_bytes: u64) -> Self {
        let mut name = socket.as_os_str().to_owned();
        name.push(format!(".{ending}.json"));
        StateFile { path: name.into(), max_bytes }
    }

    /// The contents; `None` if there is no such file.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, StateFileError> {
        let file = match open(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let is = file.metadata()?;
        if !is.is_file() {
            return Err(StateFileError::NotRegular);
        }
        if is.uid() != geteuid().as_raw() {
            return Err(StateFileError::Foreign(is.uid()));
        }
        let mut text = Vec::new();
        file.take(self.max_bytes + 1).read_to_end(&mut text)?;
        if text.len() as u64 > self.max_bytes {
            return Err(StateFileError::TooLong(self.max_bytes));
        }
        serde_json::from_slice(&text).map_err(StateFileError::Contents)
    }

    /// Replaces the file atomically. Fails if the contents are larger than can be read back.
    pub fn write(&self, contents: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(contents)?;
        if text.len() as u64 > self.max_bytes {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let new = self.new_path();
        ignore_missing(fs::remove_file(&new))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// Removes the file, so that a later service does not find it; also what a service left that was killed while it
    /// wrote.
    pub fn remove(&self) {
        for path in [&self.path, &self.new_path()] {
            if let Err(e) = ignore_missing(fs::remove_file(path)) {
                warn!("{} cannot be removed: {e}", path.display());
            }
        }
    }

    fn new_path(&self) -> PathBuf {
        self.path.with_extension("json.new")
    }
}

/// Opens the file without blocking on a pipe and without following a symbolic link.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by killing services at random moments: one that was killed while it wrote left its new file for ever.
    #[test]
    fn nothing_stays_of_a_killed_service() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateFile::new(&dir.path().join("c"), "state", 100);
        state.write(&1).unwrap();
        fs::write(dir.path().join("c.state.json.new"), "half").unwrap();
        assert_eq!(state.read::<u8>().unwrap(), Some(1));
        state.remove();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
