//! What others have changed while a service runs, kept for the one that follows a crash.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::commands::text_of;
use crate::control::Attributes;
use crate::schemes::Form;
use crate::words::{chain, say};

/// `docs/abi/testing/state.md`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// the command line of the service that has left this
    pub command: Vec<String>,
    pub paused: bool,
    /// the last that were committed
    pub schemes: Option<Schemes>,
    /// all that have been set
    pub attributes: Attributes,
}

/// As they were sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schemes {
    pub text: String,
    pub form: Form,
}

/// A file beside the socket, there as long as there are changes: after a clean end there is none.
pub struct Saved {
    path: PathBuf,
    /// what it is for
    command: Vec<String>,
    changes: Changes,
}

impl Saved {
    /// Of the service of this socket, which is ours.
    pub fn beside(socket: &Path) -> Self {
        let words = std::env::args_os().skip(1);
        let command: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Saved {
            path: socket.with_extension("state.json"),
            changes: Changes { command: command.clone(), ..Changes::default() },
            command,
        }
    }

    /// What one that did not end cleanly has left for its like. What cannot be read is set aside.
    pub fn left(&self) -> Option<Changes> {
        let name = self.path.display();
        if !self.path.exists() {
            return None;
        }
        let text = text_of(&self.path, || format!("cannot read {name}"));
        match text.and_then(|text| Ok(serde_json::from_str::<Changes>(&text)?)) {
            Ok(left) if left.command == self.command => Some(left),
            Ok(_) => {
                say(format_args!(
                    "isotherm: {name} was left by a service of other options, and is not taken up"
                ));
                self.forget();
                None
            }
            Err(e) => {
                let aside = self.path.with_extension("json.bad");
                let moved = fs::rename(&self.path, &aside);
                let moved = moved.map_or_else(|e| e.to_string(), |()| aside.display().to_string());
                say(format_args!(
                    "isotherm: {name}, which a service has left that did not end cleanly, is not understood, \
                     and set aside ({moved}): {}",
                    chain(&e)
                ));
                None
            }
        }
    }

    /// Changes what is kept. That it cannot be is said; it concerns nobody but after a crash.
    pub fn change(&mut self, change: impl FnOnce(&mut Changes)) {
        let before = self.changes.clone();
        change(&mut self.changes);
        if self.changes == before {
            return;
        }
        if let Err(e) = self.write() {
            let name = self.path.display();
            say(format_args!(
                "isotherm: a crash would undo this, as {name} cannot be written: {e}"
            ));
        }
    }

    /// Whole, or as it was.
    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        gone(fs::remove_file(&new))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&self.changes)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// Nothing is left for who follows.
    pub fn forget(&self) {
        if let Err(e) = gone(fs::remove_file(&self.path)) {
            say(format_args!("isotherm: {} cannot be removed: {e}", self.path.display()));
        }
    }
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
    fn what_was_changed_outlives_who_was_told() {
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
    fn what_is_not_understood_is_set_aside() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("control.state.json");
        for bad in ["", "{\"paused\":tr", "[]", "{\"paused\":true,\"colour\":1}"] {
            fs::write(&path, bad).unwrap();
            assert_eq!(saved(dir.path()).left(), None, "{bad}");
            let aside = dir.path().join("control.state.json.bad");
            assert_eq!(fs::read_to_string(&aside).unwrap(), bad);
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_was_for_other_options_is_not_taken_up() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut other = saved(dir.path());
        other.changes.command = vec!["reclaim".into(), "--pid=1".into()];
        other.change(|c| c.paused = true);
        assert_eq!(saved(dir.path()).left(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
