//! What may be wrong with a workload.

use std::time::Duration;

use super::check::{MAX_COUNTS, MAX_NAME};

/// Why something is no workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// no TOML, or other keys than there are
    #[error("the workload cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// too many or too few
    #[error("there are {found} {what}: choose 1 to {max}")]
    Number {
        /// of what
        what: &'static str,
        /// how many
        found: usize,
        /// at most
        max: usize,
    },
    /// a name is empty, too long, or taken
    #[error("{name:?} cannot be the name of a {what}: choose another of 1 to {MAX_NAME} bytes")]
    Name {
        /// region or phase
        what: &'static str,
        /// which
        name: String,
    },
    /// a size that is nothing, no multiple of a page, or too big
    #[error(
        "{size} bytes cannot be the {what} of region {region}: choose a multiple of 4K, {hint}"
    )]
    Size {
        /// of what
        what: &'static str,
        /// whose
        region: String,
        /// found
        size: u64,
        /// what else it must be
        hint: &'static str,
    },
    /// all regions and gaps together
    #[error("the regions and gaps take {bytes} bytes: make them at most 64G")]
    TooBig {
        /// found
        bytes: u64,
    },
    /// too short or too long
    #[error("{found:?} cannot be the {what}: choose {:?} to {:?}", .range[0], .range[1])]
    Time {
        /// of what
        what: String,
        /// found
        found: Duration,
        /// allowed
        range: [Duration; 2],
    },
    /// a rate, exponent, stride or number of threads
    #[error("{found} cannot be the {what} of an access of region {region}: choose {hint}")]
    Value {
        /// of what
        what: &'static str,
        /// whose
        region: String,
        /// found
        found: f64,
        /// what it may be
        hint: &'static str,
    },
    /// no such region
    #[error("phase {phase} accesses region {region}, which there is not: the regions are {known}")]
    NoRegion {
        /// where
        phase: String,
        /// which
        region: String,
        /// those there are
        known: String,
    },
    /// two accesses of a region at a time
    #[error(
        "phase {phase} accesses region {region} twice: give it one access, or make two regions"
    )]
    Twice {
        /// where
        phase: String,
        /// which
        region: String,
    },
    /// strides, blocks or windows that differ
    #[error(
        "the accesses of region {region} have different strides, blocks or windows: make a region for each"
    )]
    Uneven {
        /// which
        region: String,
    },
    /// shared memory that would not stay so
    #[error(
        "region {region} is shared and written, which gives each process a copy: use op = \"read\""
    )]
    SharedWrite {
        /// which
        region: String,
    },
    /// both
    #[error("region {region} is huge and shared: choose one")]
    HugeShared {
        /// which
        region: String,
    },
    /// no room
    #[error(
        "{islands} islands do not fit into the gaps: make the gaps larger, 512K for each island"
    )]
    Islands {
        /// wanted
        islands: u32,
    },
    /// a cell of a picture
    #[error(
        "{found:?} in row {row}, column {column} of the picture has no rate: rates has {known}; '.' and ' ' rest"
    )]
    Character {
        /// which
        found: char,
        /// where, from 1
        row: usize,
        /// where, from 1
        column: usize,
        /// those that have one
        known: String,
    },
    /// more truth than anybody wants to read
    #[error(
        "the truth would have {found} counts, of at most {MAX_COUNTS}: choose a shorter --duration, larger blocks or windows, or fewer moves"
    )]
    Counts {
        /// stretches times intervals
        found: usize,
    },
}
