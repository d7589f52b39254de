//! Files beside the control socket, which one service leaves for the next one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

/// Failures of reading such a file.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
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

/// A JSON file beside the socket, with the socket's name and an ending. It is always replaced as a whole.
pub struct Beside {
    pub path: PathBuf,
    /// maximum size in bytes
    most: u64,
}

impl Beside {
    /// `control.sock.state.json` for `control.sock` and `state`.
    pub fn new(socket: &Path, ending: &str, most: u64) -> Self {
        let mut name = socket.as_os_str().to_owned();
        name.push(format!(".{ending}.json"));
        Beside { path: name.into(), most }
    }

    /// The contents; `None` if there is no such file.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, BesideError> {
        let file = match open(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let is = file.metadata()?;
        if !is.is_file() {
            return Err(BesideError::NotRegular);
        }
        if is.uid() != geteuid().as_raw() {
            return Err(BesideError::Foreign(is.uid()));
        }
        let mut text = Vec::new();
        file.take(self.most + 1).read_to_end(&mut text)?;
        if text.len() as u64 > self.most {
            return Err(BesideError::TooLong(self.most));
        }
        serde_json::from_slice(&text).map_err(BesideError::Contents)
    }

    /// Replaces the file atomically. Fails if the contents are larger than can be read back.
    pub fn write(&self, contents: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(contents)?;
        if text.len() as u64 > self.most {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let new = self.path.with_extension("json.new");
        gone(fs::remove_file(&new))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// Removes the file, so that a later service does not find it.
    pub fn remove(&self) {
        if let Err(e) = gone(fs::remove_file(&self.path)) {
            warn!("{} cannot be removed: {e}", self.path.display());
        }
    }
}

/// Opens the file without blocking on a pipe and without following a symbolic link.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
