//! The control socket: `docs/abi/testing/control.md`.

mod ask;
mod attributes;
mod snapshot;
mod socket;
mod status_text;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::schemes::SchemeSyntax;
use crate::session::KeptSnapshots;

pub use ask::{ask, say_to};
pub use attributes::Attributes;
pub use snapshot::{LastSnapshot, run_of, snapshots};
pub use socket::{Control, answer, wait};
pub use status_text::{machine_text, status_text};

/// Maximum length of a request, in bytes.
const MAX_LINE: usize = 1 << 20;
/// Maximum length of an answer, in bytes: enough for all processes of a large machine.
const MAX_ANSWER: u64 = 64 << 20;

/// A request: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// report the state of the service and what it has done
    Status,
    /// stop acting, but continue to watch
    Pause,
    /// resume acting after a pause
    Resume,
    /// end the service
    Stop,
    /// replace the schemes
    Commit {
        /// the text of the new schemes
        schemes: String,
        /// the form of that text: TOML or one scheme per line
        form: SchemeSyntax,
    },
    /// change attributes of the monitor, for example its budget
    Attributes(Attributes),
    /// change which processes are watched
    Targets {
        #[serde(default)]
        /// pids to watch from now on, in addition to the current ones
        add: Vec<i32>,
        #[serde(default)]
        /// pids to stop watching
        remove: Vec<i32>,
    },
    /// return the last snapshot, or the history
    Snapshot {
        /// number of the last snapshot that the client has: there is no answer before a later one
        after: Option<u64>,
        /// in ns: return the first kept snapshots that start then or later instead, as many as fit in an answer
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u64>,
    },
    /// start a record, or end it
    Record {
        /// the file of the record: an absolute path
        file: Option<PathBuf>,
        /// maximum size of the record, in bytes
        max_size: Option<u64>,
        #[serde(default)]
        /// whether to end the current record instead of starting one
        off: bool,
    },
}

impl Request {
    /// Parses a line without its end.
    ///
    /// # Errors
    /// If it is no request: why, and which forms requests have.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        const SHAPES: &str = "write one as {\"do\":\"status\"}: status, pause, resume, stop, commit, \
                              attributes, targets or record";
        serde_json::from_slice(line)
            .map_err(|e| format!("this is not a valid request ({e}): {SHAPES}"))
    }
}

/// An answer: one line of JSON.
#[derive(Debug, Serialize)]
pub struct Response<T> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<KeptSnapshots>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl<T> Response<T> {
    /// The request was carried out.
    pub fn done() -> Self {
        Response::noted(Vec::new())
    }

    /// The request was carried out; `notes` are for the user.
    pub fn noted(notes: Vec<String>) -> Self {
        Response { ok: true, error: None, status: None, snapshot: None, notes }
    }

    /// The request was refused, for the reason `why`.
    pub fn refused(why: String) -> Self {
        let notes = Vec::new();
        Response { ok: false, error: Some(why), status: None, snapshot: None, notes }
    }

    /// The answer to [`Request::Status`].
    pub fn status(status: T) -> Self {
        Response { status: Some(status), ..Response::done() }
    }

    /// The answer to [`Request::Snapshot`]; `None` if there is none yet.
    pub fn snapshot(snapshot: Option<KeptSnapshots>) -> Self {
        Response { snapshot, ..Response::done() }
    }
}

/// Failures of the control socket itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// the socket cannot be created
    #[error("cannot make the control socket {path}: {source}; name another place with --control")]
    Make {
        /// path of the socket
        path: String,
        /// the error of the operating system
        source: io::Error,
    },
    /// another process already listens on the socket
    #[error(
        "the control socket {path} belongs to {who}, which is running: end it (isotherm service \
         stop --control {path}), or name another with --control"
    )]
    Taken {
        /// path of the socket
        path: String,
        /// the process that listens
        who: String,
    },
    /// a file that is not a socket exists at this path
    #[error("{0} exists and is not a socket: name another place with --control")]
    Foreign(String),
    /// no process listens on the socket
    #[error(
        "no service listens on {path}: start one (isotherm reclaim --all; record and run listen with --control \
         PATH), or name its socket with --control"
    )]
    NoService {
        /// path of the socket
        path: String,
    },
    /// the connection failed
    #[error("cannot communicate with the service on {path}: {source}")]
    Speak {
        /// path of the socket
        path: String,
        /// the error of the operating system
        source: io::Error,
    },
    /// the service did not answer in time
    #[error(
        "the service on {path} has not answered within {seconds} s: it is busy with a long operation, or \
         stopped. Try again; if that does not help, look at its process (ps) and its log"
    )]
    Silent {
        /// path of the socket
        path: String,
        /// how long the client waited, in seconds
        seconds: u64,
    },
    /// the answer is malformed
    #[error("the service on {path} has sent an invalid answer: {what}")]
    Senseless {
        /// path of the socket
        path: String,
        /// what is wrong with the answer
        what: String,
    },
    /// the request is longer than `MAX_LINE`; with its length in bytes
    #[error("a request of {0} bytes is longer than {MAX_LINE} bytes: schemes are a few lines")]
    TooLong(usize),
    /// the service refused the request, for this reason
    #[error("{0}")]
    Refused(String),
}

/// The path of the socket if no option names one: the same for every process that runs as root, by login or by
/// sudo.
pub fn default_path() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = own.filter(|_| !rustix::process::geteuid().is_root());
    let dir = own.map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    dir.join("isotherm/control.sock")
}
