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
    /// Parses a workload of either kind: one with regions or a picture describes memory.
    ///
    /// # Errors
    /// If it is neither, or is invalid.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let table: toml::Table = toml::from_str(text).map_err(StreamsError::Toml)?;
        if ["region", "picture"].iter().any(|key| table.contains_key(*key)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_touched_by_a_process() {
        let text = "about = 'stairs'\n[picture]\nsize = '1M'\nphase = '1s'\n\
                    rates = { '#' = 40 }\nrows = ['.#', '#.']\n";
        assert!(matches!(LabLoad::parse(text).unwrap(), LabLoad::Process(_)));
        assert!(matches!(LabLoad::parse("about = 'none'\n"), Err(LoadError::Streams(_))));
    }
}
