//! One file a command.

mod child;
pub mod control;
pub mod doctor;
pub mod export;
pub mod interleave;
pub mod lab;
mod metrics;
pub mod reclaim;
pub mod record;
pub mod report;
pub mod run;
mod stop;
pub mod swap;
mod watch;
pub mod workload;
pub mod zones;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use isotherm_record::{ReadError, Reader};

use crate::cli::UsageError;

/// A file that describes something is at most this long, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// Reads a file that describes something; `unknown` says what else could have been named.
fn text_of(path: &Path, unknown: impl Fn() -> String) -> Result<String> {
    text_in(File::open(path).with_context(&unknown)?, path, unknown)
}

/// The same of a file that is open.
fn text_in(file: File, path: &Path, unknown: impl Fn() -> String) -> Result<String> {
    let mut text = String::new();
    file.take(MAX_TEXT + 1).read_to_string(&mut text).with_context(&unknown)?;
    if text.len() as u64 > MAX_TEXT {
        anyhow::bail!("{} is longer than 1 MiB: such files are a few lines", path.display());
    }
    Ok(text)
}

/// Opens a record; where there is none, says how to make one.
fn open(path: &Path) -> Result<Reader> {
    Reader::open(path).map_err(|e| {
        let missing =
            matches!(&e, ReadError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
        let text = if missing {
            format!(
                "{e}; record one first (isotherm record -o {} ...), or name another with -i",
                path.display()
            )
        } else {
            e.to_string()
        };
        anyhow::Error::from(e).context(text)
    })
}

/// Creates a file to write to, unless that is the record which is being read.
fn create(output: &Path, input: &Path) -> Result<File> {
    let inode = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    if inode(output).is_some_and(|o| inode(input) == Some(o)) {
        let text =
            format!("{} is the record itself: choose another name to write to", output.display());
        return Err(UsageError::new(text).into());
    }
    File::create(output).with_context(|| format!("cannot write {}", output.display()))
}
