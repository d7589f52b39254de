//! The load of the machine: streams, or a process whose memory is touched as a workload defines.

use super::streams::{Streams, StreamsError};
use crate::workload::{Workload, WorkloadError};

/// See the head of this file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum LabLoad {
    /// files that are read and written
    Streams(Streams),
    /// memory that is touched
    Process(Workload),
}

/// Why a file is not a valid workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// of files
    #[error(transparent)]
    Streams(#[from] StreamsError),
    /// of memory
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

impl LabLoad {
    /// Parses a workload of either kind: one with regions describes memory.
    ///
    /// # Errors
    /// If it is neither, or is invalid.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let table: toml::Table = toml::from_str(text).map_err(StreamsError::Toml)?;
        if table.contains_key("region") {
            return Ok(LabLoad::Process(Workload::parse(text)?));
        }
        Ok(LabLoad::Streams(Streams::parse(text)?))
    }

    /// Its description, in one line.
    #[must_use]
    pub fn about(&self) -> &str {
        match self {
            LabLoad::Streams(s) => &s.about,
            LabLoad::Process(w) => &w.about,
        }
    }

    /// The numbers of threads with which to run it.
    #[must_use]
    pub fn threads(&self) -> Vec<u32> {
        match self {
            LabLoad::Streams(s) => s.threads.clone(),
            LabLoad::Process(_) => vec![1],
        }
    }
}
