//! What comes of writing a record.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;

use crate::limits::LimitsError;

/// Whether there is room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// there is
    Going,
    /// The record has reached its size and has been given its end: nothing more is written.
    Full,
}

/// What a recording has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// snapshots written
    pub snapshots: u64,
    /// frames written
    pub frames: u64,
    /// bytes written, those in files that have made room included
    pub bytes: u64,
    /// files begun
    pub files: u64,
    /// Whether the record is where it should be. One without snapshots does not take the place of
    /// an earlier one, and is gone.
    pub in_place: bool,
}

/// Why a record cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// the limits make no sense
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// something else is there
    #[error(
        "{} exists and is no isotherm record, so it is left alone: choose another name, or remove it first",
        path.display()
    )]
    Foreign {
        /// what is there
        path: PathBuf,
    },
    /// another recording writes it
    #[error(
        "the record {} is being written by another recording: choose another name, or end that one first",
        path.display()
    )]
    Busy {
        /// which file
        path: PathBuf,
    },
    /// the disk or the directory
    #[error(
        "cannot write the record {}: {source}; see that its directory exists, is writable, and has room",
        path.display()
    )]
    Io {
        /// which file
        path: PathBuf,
        /// what the system said
        source: io::Error,
    },
    /// what a file begins with, and one frame, do not fit in it
    #[error(
        "the record {} needs files of {needed} bytes, but may have only {allowed}: raise --max-size, or lower --rotate",
        path.display()
    )]
    Small {
        /// which record
        path: PathBuf,
        /// bytes that would do
        needed: u64,
        /// bytes that a file may have
        allowed: u64,
    },
    /// the snapshot is not one that a source may deliver
    #[error("{what} cannot be recorded, as {why}: this is a fault of isotherm, please report it")]
    Refused {
        /// a snapshot, facts, mappings
        what: &'static str,
        /// what is wrong with it
        why: String,
    },
}

impl WriteError {
    pub(crate) fn refused(what: &'static str, why: impl ToString) -> Self {
        WriteError::Refused { what, why: why.to_string() }
    }
}

impl From<ArrowError> for WriteError {
    fn from(e: ArrowError) -> Self {
        WriteError::refused("a snapshot", e)
    }
}
