//! The control socket: `docs/abi/testing/control.md`.

mod ask;
mod attributes;
mod socket;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::schemes::Form;

pub use ask::{ask, say_to};
pub use attributes::Attributes;
pub use socket::{Control, answer, wait};

/// A request is at most so long, in bytes.
const MAX_LINE: usize = 1 << 20;
/// An answer is at most so long: all processes of a big machine.
const MAX_ANSWER: u64 = 64 << 20;

/// What is asked for: a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// what it does, and has done
    Status,
    /// act no more, go on watching
    Pause,
    /// act again
    Resume,
    /// end
    Stop,
    /// other schemes
    Commit {
        /// their text
        schemes: String,
        /// how that is written
        form: Form,
    },
    /// another budget, and so on
    Attributes(Attributes),
    /// these processes too, and those no longer
    Targets {
        #[serde(default)]
        /// these too
        add: Vec<i32>,
        #[serde(default)]
        /// these no longer
        remove: Vec<i32>,
    },
    /// have a record written, or ended
    Record {
        /// where it goes: a whole path
        file: Option<PathBuf>,
        /// how large it may become, in bytes
        max_size: Option<u64>,
        #[serde(default)]
        /// whether it is to end
        off: bool,
    },
}

/// What is answered: a line.
#[derive(Debug, Serialize)]
pub struct Answer<T> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<T>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl<T> Answer<T> {
    /// Done.
    pub fn done() -> Self {
        Answer::noted(Vec::new())
    }

    /// Done, and what is to be known about it.
    pub fn noted(notes: Vec<String>) -> Self {
        Answer { ok: true, error: None, status: None, notes }
    }

    /// Not done, and why.
    pub fn refused(why: String) -> Self {
        Answer { ok: false, error: Some(why), status: None, notes: Vec::new() }
    }

    /// How things are.
    pub fn status(status: T) -> Self {
        Answer { ok: true, error: None, status: Some(status), notes: Vec::new() }
    }
}

/// What goes wrong with the socket itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// not to be made
    #[error("cannot make the control socket {path}: {source}; name another place with --control")]
    Make {
        /// of the socket
        path: String,
        /// what the system says
        source: io::Error,
    },
    /// somebody listens there
    #[error(
        "the control socket {path} is that of {who}, which is alive: end it (isotherm service stop --control \
         {path}), or name another with --control"
    )]
    Taken {
        /// of the socket
        path: String,
        /// who listens there
        who: String,
    },
    /// something else lies there
    #[error("{0} exists and is no socket: name another place with --control")]
    Foreign(String),
    /// nobody listens there
    #[error(
        "no service listens on {path}: start one (isotherm reclaim --all; record and run listen with --control \
         PATH), or name its socket with --control"
    )]
    Nobody {
        /// of the socket
        path: String,
    },
    /// cannot be spoken with
    #[error("cannot communicate with the service on {path}: {source}")]
    Speak {
        /// of the socket
        path: String,
        /// what the system says
        source: io::Error,
    },
    /// does not answer
    #[error(
        "the service on {path} has not answered within {seconds} s: it is busy with a long operation, or \
         stopped. Try again; if that does not help, look at its process (ps) and its log"
    )]
    Silent {
        /// of the socket
        path: String,
        /// how long it was waited for
        seconds: u64,
    },
    /// has no sense
    #[error("the service on {path} has sent an invalid answer: {what}")]
    Senseless {
        /// of the socket
        path: String,
        /// what is wrong with it
        what: String,
    },
    /// longer than is read
    #[error("a request of {0} bytes is longer than {MAX_LINE} bytes: schemes are a few lines")]
    TooLong(usize),
    /// by the service
    #[error("{0}")]
    Refused(String),
}

/// Where the socket is if nothing is said: the same for all who are root, however they came to be.
pub fn default_path() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = own.filter(|_| !rustix::process::geteuid().is_root());
    let dir = own.map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    dir.join("isotherm/control.sock")
}
