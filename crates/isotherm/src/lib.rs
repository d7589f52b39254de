//! Which memory of running programs is hot: watched, recorded, and acted on.
//!
//! A [`Session`] selects processes, follows them as they come and go, chooses a way to look, and delivers snapshots.
//! [`record::record`] writes them to a file, [`service`] acts on memory by schemes. The program `isotherm` is this
//! library with a command line.
//!
//! Policy is in [`core`], the mechanism of Linux in [`linux`], the record file in [`file`](isotherm_record).

pub mod control;
pub mod files;
pub mod follow;
pub mod interleave;
pub mod metrics;
mod notify;
mod pace;
pub mod record;
pub mod schemes;
mod served;
pub mod service;
pub mod session;
pub mod stop;
pub mod units;
pub mod usage;
pub mod watch;
pub mod words;
pub mod workload;
pub mod zones;

pub use isotherm_core as core;
pub use isotherm_linux as linux;

pub use follow::Selection;
pub use session::Session;
pub use usage::UsageError;

/// Of the file system in which `/proc` is.
pub const ROOT: &str = "/";
