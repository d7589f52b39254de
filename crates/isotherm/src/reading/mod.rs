//! Reading of records: which part of them, for which targets.

mod head;
mod play;
mod select;

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::Snapshot;
use isotherm_record::{Event, Lost, ReadError, Reader};
use isotherm_report::{FilterError, counted};
use isotherm_sim::whatif::WhatIfError;
use tracing::info;

use crate::text_file::{StdinError, standard_input};

pub use head::Head;
pub use play::PlayedRecord;
pub(crate) use select::program;
pub use select::{only, options};

/// The record to read.
#[derive(Debug, Clone)]
pub struct Input {
    /// its path; `-` is standard input
    pub path: PathBuf,
    /// whether to leave out damaged parts, instead of ending there
    pub skip_damaged: bool,
}

/// A part of a record.
#[derive(Debug, Clone)]
pub struct RecordSelection {
    /// the record
    pub input: Input,
    /// time since the beginning of the recording; `None`: all
    pub time: Option<Range<Duration>>,
    /// targets by pid, part of the command line, or number; empty: all
    pub targets: Vec<String>,
}

/// Failures of reading a record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadingError {
    /// there is no such record
    #[error(
        "{source}; record one first (isotherm record -o {} ...), or give the path of another record",
        path.display()
    )]
    Missing {
        /// the path
        path: PathBuf,
        /// the error
        source: ReadError,
    },
    /// the record cannot be read
    #[error("{0}")]
    Read(#[from] ReadError),
    /// standard input cannot be read
    #[error("{0}")]
    Stdin(#[from] StdinError),
    /// all snapshots are damaged; with their number
    #[error(
        "no snapshot of the record can be read, because it is damaged: {0} are missing; isotherm record \
         --check reports where"
    )]
    Damaged(u64),
    /// the record ends before its first snapshot
    #[error("there is no snapshot to show")]
    NoSnapshot(#[source] ReadError),
    /// the record has neither its beginning nor a snapshot
    #[error("neither its beginning nor any snapshot can be read")]
    NoFacts,
    /// no target matches a word
    #[error("no target matches {word:?}: the record has {targets}")]
    NoTarget {
        /// the word
        word: String,
        /// the targets of the record
        targets: String,
    },
    /// several targets match; with the targets of the record
    #[error("choose a target with --target: the record has {0}")]
    SeveralTargets(String),
    /// the selected part is empty
    #[error("{0}")]
    Filter(#[from] FilterError),
    /// the record cannot be played
    #[error("{0}")]
    Play(#[from] WhatIfError),
}

impl ReadingError {
    /// Whether the rest of the record can be read by skipping the damaged or missing part.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        matches!(self, ReadingError::Read(e) if e.is_repairable())
    }
}

/// Opens a record. If there is none, the error says how to record one.
///
/// # Errors
/// If it cannot be opened.
pub fn open(input: &Input) -> Result<Reader, ReadingError> {
    let reader = if input.path == Path::new("-") {
        Reader::new(standard_input()?, Path::new("on standard input"))
    } else {
        Reader::open(&input.path)
    };
    let reader = reader.map_err(|e| match &e {
        ReadError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            ReadingError::Missing { path: input.path.clone(), source: e }
        }
        _ => ReadingError::Read(e),
    })?;
    Ok(if input.skip_damaged { reader.skip_damaged() } else { reader })
}

/// The missing parts of a damaged record, as text.
#[must_use]
pub fn lost_text(lost: &Lost) -> String {
    format!(
        "the record is damaged: {} snapshot{} missing, as {} bytes in {} cannot be read",
        lost.snapshots,
        if lost.snapshots == 1 { " is" } else { "s are" },
        lost.bytes,
        counted(lost.places, "place"),
    )
}

/// Calls `push` for each snapshot. An incomplete record is shown as far as it goes.
///
/// # Errors
/// If the record cannot be read, or has no snapshot; errors of `push`.
pub fn each_snapshot<E: From<ReadingError>>(
    input: &Input,
    warn: bool,
    mut push: impl FnMut(&Arc<Snapshot>) -> Result<(), E>,
) -> Result<(), E> {
    each_shown(input, warn, |event| match event {
        Event::Snapshot(s) => push(s),
        _ => Ok(()),
    })
}

/// Calls `take` for each event. An incomplete record is shown as far as it goes.
///
/// # Errors
/// If the record cannot be read, or has no snapshot; errors of `take`.
pub fn each_shown<E: From<ReadingError>>(
    input: &Input,
    warn: bool,
    mut take: impl FnMut(&Event) -> Result<(), E>,
) -> Result<(), E> {
    let mut any = false;
    let mut lost = Lost::default();
    let torn = each_event(open(input)?, |event, skipped| {
        lost = skipped;
        any |= matches!(event, Event::Snapshot(_));
        take(event)
    })?;
    if !any && lost.places > 0 {
        return Err(ReadingError::Damaged(lost.snapshots).into());
    }
    match torn {
        Some(torn) if !any => Err(ReadingError::NoSnapshot(torn).into()),
        Some(torn) if warn => {
            info!("{torn}");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Calls `take` for each event, with the losses before it. Returns the reason if the record is
/// incomplete.
///
/// # Errors
/// If the record cannot be read; errors of `take`.
fn each_event<E: From<ReadingError>>(
    mut reader: Reader,
    mut take: impl FnMut(&Event, Lost) -> Result<(), E>,
) -> Result<Option<ReadError>, E> {
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => take(&event, reader.lost())?,
            Err(torn @ ReadError::Torn { .. }) => return Ok(Some(torn)),
            Err(e) => return Err(ReadingError::Read(e).into()),
        }
    }
    Ok(None)
}
