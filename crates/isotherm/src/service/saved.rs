//! Changes that a service receives while it runs, saved for the service that follows a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::control::Attributes;
use crate::files::{TextError, text_in};
use crate::schemes::Form;
use crate::words::chain;

/// `docs/abi/testing/state.md`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// the command line of the service that wrote this
    pub command: Vec<String>,
    pub paused: bool,
    /// the last committed schemes
    pub schemes: Option<Schemes>,
    /// all attributes that were set
    pub attributes: Attributes,
}

/// The text of schemes, as it was received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schemes {
    pub text: String,
    pub form: Form,
}

/// Failures of reading saved changes.
#[derive(Debug, thiserror::Error)]
enum SavedError {
    #[error("{0}")]
    Open(#[from] io::Error),
    #[error("{0}")]
    Text(#[from] TextError),
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it belongs to user {0}, not to the user of the service")]
    Foreign(u32),
    #[error("its contents are invalid")]
    Contents(#[source] serde_json::Error),
}

/// A file beside the socket. It exists while there are changes, and is removed at a clean end.
pub struct Saved {
    path: PathBuf,
    /// the command line of this service
    command: Vec<String>,
    changes: Changes,
}

impl Saved {
    /// The file of the service on `socket`, which this process owns.
    pub fn beside(socket: &Path) -> Self {
        let words = std::env::args_os().skip(1);
        let command: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Saved {
            path: name_beside(socket),
            changes: Changes { command: command.clone(), ..Changes::default() },
            command,
        }
    }

    /// The changes of a service with the same command line that did not end cleanly. A file of another user, or
    /// one that cannot be read, is set aside. A file of a service with other options is removed.
    pub fn left(&self) -> Option<Changes> {
        let name = self.path.display();
        let file = match open(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            file => file,
        };
        match file.map_err(SavedError::from).and_then(|file| self.read(file)) {
            Ok(left) if left.command == self.command => Some(left),
            Ok(_) => {
                warn!("{name} is from a service with other options, and is ignored");
                self.forget();
                None
            }
            Err(e) => {
                let aside = self.path.with_extension("json.bad");
                let moved = fs::rename(&self.path, &aside);
                let moved = moved.map_or_else(|e| e.to_string(), |()| aside.display().to_string());
                warn!(
                    "{name}, the saved state of the service, cannot be parsed, and was set aside \
                     ({moved}): {}",
                    chain(&e)
                );
                None
            }
        }
    }

    fn read(&self, file: File) -> Result<Changes, SavedError> {
        let is = file.metadata()?;
        if !is.is_file() {
            return Err(SavedError::NotRegular);
        }
        if is.uid() != geteuid().as_raw() {
            return Err(SavedError::Foreign(is.uid()));
        }
        let text = text_in(file, &self.path, || "it cannot be read".to_owned())?;
        serde_json::from_str(&text).map_err(SavedError::Contents)
    }

    /// Changes the saved state. If it cannot be written, prints a warning and continues, because only a crash
    /// would lose it.
    pub fn change(&mut self, change: impl FnOnce(&mut Changes)) {
        let before = self.changes.clone();
        change(&mut self.changes);
        if self.changes == before {
            return;
        }
        if let Err(e) = self.write() {
            let name = self.path.display();
            warn!("a crash would undo this, because {name} cannot be written: {e}");
        }
    }

    /// Replaces the file atomically.
    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        gone(fs::remove_file(&new))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&self.changes)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// Removes the file, so that a later service finds no changes.
    pub fn forget(&self) {
        if let Err(e) = gone(fs::remove_file(&self.path)) {
            warn!("{} cannot be removed: {e}", self.path.display());
        }
    }
}

/// `control.sock.state.json` for `control.sock`.
fn name_beside(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".state.json");
    name.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(dir: &Path) -> Saved {
        Saved::beside(&dir.join("control.sock"))
    }

    #[test]
    fn changes_survive_the_service() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut first = saved(dir.path());
        assert_eq!(first.left(), None);
        let schemes = Schemes { text: "4K null".into(), form: Form::Txt };
        first.change(|c| c.paused = true);
        first.change(|c| c.schemes = Some(schemes.clone()));
        let left = saved(dir.path()).left().unwrap();
        assert_eq!((left.paused, left.schemes), (true, Some(schemes)));
        first.forget();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn unreadable_state_is_set_aside() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("control.sock.state.json");
        for bad in ["", "{\"paused\":tr", "[]", "{\"paused\":true,\"colour\":1}"] {
            fs::write(&path, bad).unwrap();
            assert_eq!(saved(dir.path()).left(), None, "{bad}");
            let aside = dir.path().join("control.sock.state.json.bad");
            assert_eq!(fs::read_to_string(&aside).unwrap(), bad);
            assert!(!path.exists());
        }
    }

    /// A pipe would be waited for, for ever.
    #[test]
    fn foreign_files_are_set_aside() {
        let dir = tempfile::TempDir::new().unwrap();
        let (state, there) = (saved(dir.path()), dir.path().join("there"));
        let others =
            |state: &Saved| state.left().is_none() && fs::symlink_metadata(&state.path).is_err();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &state.path, mode).unwrap();
        assert!(others(&state));
        let text = serde_json::to_string(&state.changes).unwrap();
        fs::write(&there, &text).unwrap();
        std::os::unix::fs::symlink(&there, &state.path).unwrap();
        assert!(others(&state));
        fs::write(&state.path, &text).unwrap();
        assert!(state.left().is_some());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&state.path, Some(65534), None).unwrap();
            assert!(others(&state));
        }
        assert_eq!(fs::read_to_string(&there).unwrap(), text);
    }

    #[test]
    fn each_socket_has_its_own() {
        let [one, two] = ["web.1", "web.2"].map(|name| Saved::beside(name.as_ref()).path);
        assert_ne!(one, two);
    }

    #[test]
    fn state_of_other_options_is_ignored() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut other = saved(dir.path());
        other.changes.command = vec!["reclaim".into(), "--pid=1".into()];
        other.change(|c| c.paused = true);
        assert_eq!(saved(dir.path()).left(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
