//! Text files that a user writes, such as descriptions of workloads, and standard input.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::usage::UsageError;

/// Maximum length of such a file, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// Failures of reading such a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// the file cannot be read
    #[error("{text}")]
    Read {
        /// the failure, and the alternatives
        text: String,
        /// the error of the operating system
        source: io::Error,
    },
    /// the file is longer than `MAX_TEXT`
    #[error("{} is longer than 1 MiB: such files are a few lines", .0.display())]
    TooLong(PathBuf),
}

/// Reads such a file. If it does not exist, the error contains the alternatives that `unknown` lists.
pub fn text_of(path: &Path, unknown: impl Fn() -> String) -> Result<String, TextError> {
    let file = File::open(path).map_err(|source| TextError::Read { text: unknown(), source })?;
    text_in(file, path, unknown)
}

/// Like [`text_of`], for a file that is already open.
pub fn text_in(file: File, path: &Path, unknown: impl Fn() -> String) -> Result<String, TextError> {
    let mut text = String::new();
    let read = file.take(MAX_TEXT + 1).read_to_string(&mut text);
    read.map_err(|source| TextError::Read { text: unknown(), source })?;
    if text.len() as u64 > MAX_TEXT {
        return Err(TextError::TooLong(path.to_owned()));
    }
    Ok(text)
}

/// The message if standard input is a terminal.
const TERMINAL: &str =
    "standard input is a terminal: give -i FILE, or pipe a record into this command";

/// Failures of reading standard input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StdinError {
    /// it is a terminal
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// it cannot be copied
    #[error("cannot copy standard input to a temporary file")]
    Copy(#[source] io::Error),
    /// it cannot be read
    #[error("cannot read standard input")]
    Read(#[source] io::Error),
    /// the copy cannot be read
    #[error("cannot read the copy of standard input again")]
    Again(#[source] io::Error),
}

/// Standard input, from its beginning. It is copied to a file without a name, because most reports
/// read a record more than once.
///
/// # Errors
/// If it is a terminal, or cannot be copied.
pub fn standard_input() -> Result<File, StdinError> {
    static STDIN_COPY: Mutex<Option<File>> = Mutex::new(None);
    let mut kept = STDIN_COPY.lock().unwrap_or_else(PoisonError::into_inner);
    let file = match kept.take() {
        Some(file) => file,
        None => {
            let mut input = io::stdin().lock();
            if input.is_terminal() {
                return Err(UsageError::new(TERMINAL).into());
            }
            let mut file = tempfile::tempfile().map_err(StdinError::Copy)?;
            io::copy(&mut input, &mut file).map_err(StdinError::Read)?;
            file
        }
    };
    let mut again = file.try_clone().map_err(StdinError::Copy)?;
    *kept = Some(file);
    again.rewind().map_err(StdinError::Again)?;
    Ok(again)
}

/// The result of a removal, after which the file is not there.
pub(crate) fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
