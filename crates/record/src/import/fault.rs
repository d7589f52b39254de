//! The errors within an importer. The caller adds the path.

use std::borrow::Cow;
use std::io;

/// Why a file cannot be imported.
#[derive(Debug)]
pub(super) enum Fault {
    /// the input cannot be read
    Io(io::Error),
    /// the content is invalid
    At {
        /// offset in the file, or in its uncompressed text
        at: u64,
        why: Cow<'static, str>,
    },
    /// the content is larger than an importer may hold
    Large { at: u64, most: usize, what: &'static str },
}

impl Fault {
    pub fn at(at: u64, why: impl Into<Cow<'static, str>>) -> Self {
        Fault::At { at, why: why.into() }
    }

    pub fn large(at: u64, most: usize, what: &'static str) -> Self {
        Fault::Large { at, most, what }
    }
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Self {
        Fault::Io(e)
    }
}
