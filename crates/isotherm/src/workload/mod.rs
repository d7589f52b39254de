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
