//! Changes that a service receives while it runs, saved for the service that follows a crash.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::beside::StateFile;
use crate::control::Attributes;
use crate::schemes::SchemeSyntax;
use crate::words::chain;

/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

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
    pub form: SchemeSyntax,
    /// interval that ages without a unit count; `None`: that of the present attributes
    pub interval_ns: Option<u64>,
}

/// A file next to the socket. It exists while there are changes, and is removed at a clean end.
pub struct Saved {
    file: StateFile,
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
            file: StateFile::new(socket, "state", MAX_FILE_BYTES),
            changes: Changes { command: command.clone(), ..Changes::default() },
            command,
        }
    }

    /// The changes of a service with the same command line that did not end cleanly. A file of another user, or
    /// one that cannot be read, is renamed. A file of a service with other options is removed.
    pub fn left(&self) -> Option<Changes> {
        let path = &self.file.path;
        let name = path.display();
        match self.file.read::<Changes>() {
            Ok(None) => None,
            Ok(Some(left)) if left.command == self.command => Some(left),
            Ok(_) => {
                warn!("{name} is from a service with other options, and is ignored");
                self.forget();
                None
            }
            Err(e) => {
                let aside = path.with_extension("json.bad");
                let moved = fs::rename(path, &aside);
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

    /// Changes the saved state. If it cannot be written, prints a warning and continues, because only a crash
    /// would lose it.
    pub fn change(&mut self, change: impl FnOnce(&mut Changes)) {
        let before = self.changes.clone();
        change(&mut self.changes);
        if self.changes == before {
            return;
        }
        if let Err(e) = self.file.write(&self.changes) {
            let name = self.file.path.display();
            warn!("a crash would undo this, because {name} cannot be written: {e}");
        }
    }

    /// Removes the file, so that a later service finds no changes.
    pub fn forget(&self) {
        self.file.remove();
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
        let (text, form) = ("4K null".to_owned(), SchemeSyntax::Txt);
        let schemes = Schemes { text, form, interval_ns: Some(7) };
        first.change(|c| c.paused = true);
        first.change(|c| c.schemes = Some(schemes.clone()));
        let left = saved(dir.path()).left().unwrap();
        assert_eq!((left.paused, left.schemes), (true, Some(schemes)));
        first.forget();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn schemes_of_an_earlier_version_have_no_interval() {
        let read = serde_json::from_str(r#"{"text":"4K null","form":"txt"}"#);
        let (text, form) = ("4K null".to_owned(), SchemeSyntax::Txt);
        assert_eq!(read.ok(), Some(Schemes { text, form, interval_ns: None }));
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
        let others = |state: &Saved| {
            state.left().is_none() && fs::symlink_metadata(&state.file.path).is_err()
        };
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &state.file.path, mode).unwrap();
        assert!(others(&state));
        let text = serde_json::to_string(&state.changes).unwrap();
        fs::write(&there, &text).unwrap();
        std::os::unix::fs::symlink(&there, &state.file.path).unwrap();
        assert!(others(&state));
        fs::write(&state.file.path, &text).unwrap();
        assert!(state.left().is_some());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&state.file.path, Some(65534), None).unwrap();
            assert!(others(&state));
        }
        assert_eq!(fs::read_to_string(&there).unwrap(), text);
    }

    #[test]
    fn each_socket_has_its_own() {
        let [one, two] = ["web.1", "web.2"].map(|name| Saved::beside(name.as_ref()).file.path);
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
