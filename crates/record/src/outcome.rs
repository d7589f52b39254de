//! The results of writing a record.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;

use crate::limits::LimitsError;

/// Whether the record can grow further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum RecordProgress {
    /// the record can grow
    Going,
    /// The record has reached its maximal size and has its end: nothing more is written.
    Full,
}

/// The totals of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordingTotals {
    /// number of snapshots written
    pub snapshots: u64,
    /// number of frames written
    pub frames: u64,
    /// bytes written, including those in files that rotation has deleted
    pub bytes: u64,
    /// number of files begun
    pub files: u64,
    /// Whether the record is at its final place. A record without snapshots does not replace an earlier one,
    /// and is deleted.
    pub in_place: bool,
}

/// The reason why a record cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// the limits are invalid
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The path contains another kind of file.
    #[error(
        "{} exists and is no isotherm record, so it is left alone: choose another name, or remove it first",
        path.display()
    )]
    Foreign {
        /// path of that file
        path: PathBuf,
    },
    /// Another recording writes this record.
    #[error(
        "the record {} is being written by another recording: choose another name, or end that one first",
        path.display()
    )]
    Busy {
        /// path of the file
        path: PathBuf,
    },
    /// The disk or the directory has returned an error.
    #[error(
        "cannot write the record {}: {source}; see that its directory exists, is writable, and has room",
        path.display()
    )]
    Io {
        /// path of the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// The beginning of each file plus one frame exceed the maximal size of a file.
    #[error(
        "the record {} needs files of {needed} bytes, but may have only {allowed}: raise --max-size, or lower --rotate",
        path.display()
    )]
    Small {
        /// path of the record
        path: PathBuf,
        /// sufficient size of a file in bytes
        needed: u64,
        /// maximal size of a file in bytes
        allowed: u64,
    },
    /// The data are invalid: no source may deliver such a snapshot.
    #[error("{what} cannot be recorded, as {why}: this is a fault of isotherm, please report it")]
    Refused {
        /// kind of the data: a snapshot, facts or mappings
        what: &'static str,
        /// why they are invalid
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
