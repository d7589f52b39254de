//! Measures which memory of running programs is hot, records the result, and acts on the memory.
//!
//! A [`Session`] selects processes, follows them as they start and end, chooses a way to look, and delivers
//! snapshots. [`record::record`] writes the snapshots to a file. [`service`] acts on memory by schemes. The
//! program `isotherm` is this library with a command line.
//!
//! [`core`] contains the policy, [`linux`] the mechanism on Linux, and [`file`](isotherm_record) the format of
//! records.

pub mod agent;
mod beside;
pub mod control;
pub mod exec;
pub mod fleet_report;
pub mod follow;
pub mod functions;
pub mod interleave;
pub mod lab;
pub mod metrics;
mod notify;
pub mod options_file;
pub mod output_file;
mod pace;
pub mod page_cache;
pub mod reading;
pub mod reclaim;
pub mod record;
#[cfg(test)]
#[path = "../../report/tests/scene/mod.rs"]
mod scene;
pub mod schemes;
mod served;
pub mod service;
pub mod session;
pub mod stacks;
pub mod stop;
pub mod text_file;
pub mod units;
pub mod usage;
pub mod watch;
pub mod whatif;
pub mod words;
pub mod workload;
pub mod zones;

pub use isotherm_core as core;
pub use isotherm_linux as linux;

pub use follow::Selection;
pub use session::Session;
pub use usage::UsageError;

/// Root directory of the file system that contains `/proc`.
pub const ROOT: &str = "/";
