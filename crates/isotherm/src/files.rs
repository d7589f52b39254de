//! Text files that a user writes: descriptions of workloads and the like.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

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
