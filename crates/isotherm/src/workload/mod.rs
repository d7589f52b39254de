//! A workload on real memory: known accesses, which are counted.

mod access_counts;
mod contents;
mod marks;
mod run;
mod touch;

pub use access_counts::TruthRecorder;
pub use contents::populated;
pub use marks::check;
pub use run::RunningWorkload;

/// Failures of running a workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadRunError {
    /// the memory cannot be mapped; with its size
    #[error("cannot map {0} MiB")]
    Map(u64, #[source] std::io::Error),
    /// the memory cannot have the pages that the workload requires
    #[error("cannot set the backing of the memory")]
    Backing(#[source] std::io::Error),
    /// a thread cannot start
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// pages have lost their contents; with their number
    #[error("memory was lost: {0} pages do not hold what was written to them")]
    Lost(usize),
}
