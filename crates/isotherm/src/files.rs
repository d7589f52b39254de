//! Text files that a user writes: descriptions of workloads and the like.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};

/// Maximum length of such a file, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// Reads such a file. If it does not exist, the error contains the alternatives that `unknown` lists.
pub fn text_of(path: &Path, unknown: impl Fn() -> String) -> Result<String> {
    text_in(File::open(path).with_context(&unknown)?, path, unknown)
}

/// Like [`text_of`], for a file that is already open.
pub fn text_in(file: File, path: &Path, unknown: impl Fn() -> String) -> Result<String> {
    let mut text = String::new();
    file.take(MAX_TEXT + 1).read_to_string(&mut text).with_context(&unknown)?;
    if text.len() as u64 > MAX_TEXT {
        anyhow::bail!("{} is longer than 1 MiB: such files are a few lines", path.display());
    }
    Ok(text)
}
