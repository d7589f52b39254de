//! A workload on real memory: known accesses, which are counted.

mod access_counts;
mod contents;
mod marks;
mod run;
mod touch;

pub use access_counts::TruthRecorder;
pub use contents::fill;
pub use marks::{check, mark};
pub use run::Running;

/// Failures of running a workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// a thread cannot start
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// pages have lost their contents; with their number
    #[error("memory was lost: {0} pages do not hold what was written to them")]
    Lost(usize),
}
