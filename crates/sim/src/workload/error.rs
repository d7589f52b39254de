//! Errors in a workload.

use std::time::Duration;

use super::check::{MAX_COUNTS, MAX_NAME};

/// The reason for which a workload is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// not TOML, or an unknown key
    #[error("the workload cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// too many or too few of something
    #[error("there are {found} {what}: choose 1 to {max}")]
    Number {
        /// the things
        what: &'static str,
        /// their number
        found: usize,
        /// maximum
        max: usize,
    },
    /// a name is empty, too long, or taken
    #[error("{name:?} cannot be the name of a {what}: choose another of 1 to {MAX_NAME} bytes")]
    Name {
        /// region or phase
        what: &'static str,
        /// the name
        name: String,
    },
    /// a size of zero, not a multiple of a page, or too large
    #[error(
        "{size} bytes cannot be the {what} of region {region}: choose a multiple of 4K, {hint}"
    )]
    Size {
        /// the meaning of the size
        what: &'static str,
        /// the region
        region: String,
        /// the size
        size: u64,
        /// a further condition
        hint: &'static str,
    },
    /// all regions and gaps together are too large
    #[error("the regions and gaps take {bytes} bytes: make them at most 64G")]
    TooBig {
        /// their size
        bytes: u64,
    },
    /// a time that is too short or too long
    #[error("{found:?} cannot be the {what}: choose {:?} to {:?}", .range[0], .range[1])]
    Time {
        /// the meaning of the time
        what: String,
        /// the time
        found: Duration,
        /// the permitted range
        range: [Duration; 2],
    },
    /// an invalid rate, exponent, stride or number of threads
    #[error("{found} cannot be the {what} of an access of region {region}: choose {hint}")]
    Value {
        /// the meaning of the number
        what: &'static str,
        /// the region
        region: String,
        /// the number
        found: f64,
        /// the permitted values
        hint: &'static str,
    },
    /// an unknown region
    #[error("phase {phase} accesses region {region}, which there is not: the regions are {known}")]
    NoRegion {
        /// the phase
        phase: String,
        /// the name of the region
        region: String,
        /// the existing regions
        known: String,
    },
    /// two accesses to a region in one phase
    #[error(
        "phase {phase} accesses region {region} twice: give it one access, or make two regions"
    )]
    Twice {
        /// the phase
        phase: String,
        /// the region
        region: String,
    },
    /// different strides, blocks or windows in a region
    #[error(
        "the accesses of region {region} have different strides, blocks or windows: make a region for each"
    )]
    Uneven {
        /// the region
        region: String,
    },
    /// a write to shared memory, which would end the sharing
    #[error(
        "region {region} is shared and written, which gives each process a copy: use op = \"read\""
    )]
    SharedWrite {
        /// the region
        region: String,
    },
    /// a region that is both huge and shared
    #[error("region {region} is huge and shared: choose one")]
    HugeShared {
        /// the region
        region: String,
    },
    /// no room for islands
    #[error(
        "{islands} islands do not fit into the gaps: make the gaps larger, 512K for each island"
    )]
    Islands {
        /// requested number
        islands: u32,
    },
    /// a character in a picture without a rate
    #[error(
        "{found:?} in row {row}, column {column} of the picture has no rate: rates has {known}; '.' and ' ' rest"
    )]
    Character {
        /// the character
        found: char,
        /// its row, from 1
        row: usize,
        /// its column, from 1
        column: usize,
        /// the characters with a rate
        known: String,
    },
    /// a truth that would be too long
    #[error(
        "the truth would have {found} counts, of at most {MAX_COUNTS}: choose a shorter --duration, larger blocks or windows, or fewer moves"
    )]
    Counts {
        /// stretches times intervals
        found: usize,
    },
}
