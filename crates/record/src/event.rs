//! The results of a reader: events, or the reason why there are no more.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use isotherm_core::{Attribution, CacheTrace, CodeMapping, Fault, Mapping, Snapshot, TargetId};

use crate::frame::VERSION;
use crate::header::{End, RecordingHeader, TargetInfo};

/// The content of a record, in its order.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "a header comes once a record, and events are not kept"
)]
#[non_exhaustive]
pub enum Event {
    /// a recording begins; once for all of its files
    Header(RecordingHeader),
    /// A target. Each file repeats it at its beginning.
    Target(TargetInfo),
    /// a target has new mappings
    Mappings {
        /// the target
        target: TargetId,
        /// its mappings from now on
        mappings: Arc<Vec<Mapping>>,
    },
    /// The program and the cgroup of a target, its bytes in swap and its major faults. It comes before the
    /// snapshot in whose interval, or after which, it was read.
    Attribution(Attribution),
    /// The files that a target may execute, for the stacks of the faults after it
    Code {
        /// the target
        target: TargetId,
        /// its code from now on
        code: Arc<Vec<CodeMapping>>,
    },
    /// A sampled page fault, or a change of a sampled page. It comes before the snapshot in whose interval, or
    /// after which, it was read.
    Fault(Fault),
    /// Accesses to a sample of the pages of files. It comes before the snapshot after whose interval it ended.
    Trace(Arc<CacheTrace>),
    /// an aggregation interval, with its mappings
    Snapshot(Arc<Snapshot>),
    /// the record is complete up to here
    End(End),
}

/// The reason why a record cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read the record {}: {source}", path.display())]
    Io {
        /// path of the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// The file is not a record.
    #[error(
        "{} is no isotherm record: it is empty, or its first bytes differ. Give a file that isotherm has recorded",
        path.display()
    )]
    NotARecord {
        /// path of the file
        path: PathBuf,
    },
    /// The end is missing. Everything that was read so far is correct.
    #[error("the record {} breaks off after byte {at}: {why}", path.display())]
    Torn {
        /// path of the file
        path: PathBuf,
        /// offset of the end of the complete data
        at: u64,
        /// reason, as far as it can be determined
        why: TornReason,
    },
    /// A frame is damaged. Everything that was read so far is correct.
    #[error(
        "the record {} is damaged in the frame at byte {at}: {why}; --skip-damaged reads the rest",
        path.display()
    )]
    Damaged {
        /// path of the file
        path: PathBuf,
        /// offset of the frame
        at: u64,
        /// kind of the damage
        why: String,
    },
    /// A later isotherm has written the record.
    #[error(
        "the record {} is of version {found}, and this isotherm reads versions up to {VERSION}: use a later isotherm",
        path.display()
    )]
    Version {
        /// path of the file
        path: PathBuf,
        /// version of the record
        found: u16,
    },
}

impl ReadError {
    /// Whether the rest of the record can be read by skipping the damaged or missing part.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        matches!(self, ReadError::Torn { .. } | ReadError::Damaged { .. })
    }
}

/// The reason why a record has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TornReason {
    /// a process still writes it
    #[error(
        "its recording continues, and writes every 5 s; everything before is valid: read the rest later"
    )]
    Recording,
    /// it ends within a frame, and no process writes it
    #[error(
        "the file ends within a frame, because a copy was incomplete or the machine crashed; \
         everything before is valid: copy the file again if there is a longer one"
    )]
    Cut,
    /// it ends after a complete frame, and no process writes it
    #[error(
        "its recording was killed, or the file was copied during the recording; everything \
         before is valid, and at most the last 5 s of the recording are missing"
    )]
    Killed,
}

/// The data of a damaged record that were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// number of damaged places
    pub places: u64,
    /// bytes in the skipped frames
    pub bytes: u64,
    /// missing snapshots, according to the numbers of the others and to the end
    pub snapshots: u64,
}
