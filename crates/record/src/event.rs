//! What a reader says: events, or why there are no more.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use isotherm_core::{Attribution, Mapping, Snapshot, TargetId};

use crate::facts::{End, Facts, TargetFact};
use crate::frame::VERSION;

/// What a record tells, in its order.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "facts come once a record, and events are not kept")]
pub enum Event {
    /// a recording begins; once for all its files
    Facts(Facts),
    /// A target. Told again at the beginning of each file.
    Target(TargetFact),
    /// the mappings of a target are new
    Mappings {
        /// whose
        target: TargetId,
        /// what they are from now on
        mappings: Arc<Vec<Mapping>>,
    },
    /// Whose a target is, and what of it is not in memory; before the snapshot in whose interval, or
    /// after which, it was read.
    Attribution(Attribution),
    /// an aggregation interval, its mappings attached
    Snapshot(Arc<Snapshot>),
    /// the record is complete up to here
    End(End),
}

/// Why a record cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// it cannot be opened or read
    #[error("cannot read the record {}: {source}", path.display())]
    Io {
        /// which file
        path: PathBuf,
        /// what the system said
        source: io::Error,
    },
    /// it is something else
    #[error(
        "{} is no isotherm record, for it does not begin like one: give a file that isotherm has recorded",
        path.display()
    )]
    NotARecord {
        /// which file
        path: PathBuf,
    },
    /// Its end is missing. All that was read before is right.
    #[error("the record {} breaks off after byte {at}: {why}", path.display())]
    Torn {
        /// which file
        path: PathBuf,
        /// where what is whole ends
        at: u64,
        /// as far as it can be told
        why: Missing,
    },
    /// A frame is damaged. All that was read before is right.
    #[error(
        "the record {} is damaged in the frame at byte {at}: {why}; what comes after it can be read with --skip-damaged",
        path.display()
    )]
    Damaged {
        /// which file
        path: PathBuf,
        /// where the frame begins
        at: u64,
        /// what is wrong with it
        why: String,
    },
    /// a later isotherm wrote it
    #[error(
        "the record {} is of version {found}, and this isotherm reads versions up to {VERSION}: use a later isotherm",
        path.display()
    )]
    Version {
        /// which file
        path: PathBuf,
        /// its version
        found: u16,
    },
}

/// Why a record has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// somebody writes it
    #[error(
        "its recording goes on, and writes every 5 s; all before is right, and what comes is to be read later"
    )]
    Recording,
    /// it ends within a frame, and nobody writes it
    #[error(
        "the file ends within a frame, as it was cut in copying, or the machine went down; all before is right: copy it again if there is a longer one"
    )]
    Cut,
    /// it ends with a frame, and nobody writes it
    #[error(
        "its recording was killed, or the file was copied while it went on; all before is right, and at most the last 5 s of the recording are missing"
    )]
    Killed,
}

/// What was passed over in a damaged record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// places that are damaged
    pub places: u64,
    /// bytes in the frames there
    pub bytes: u64,
    /// snapshots that are missing, by the numbers of those that are not, and by the end
    pub snapshots: u64,
}
