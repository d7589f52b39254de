//! Fair zone allocation: what each policy does to streaming readers and writers.
//!
//! `docs/lab/fair-zone.md` tells the story.

mod load;
pub mod policies;
mod properties;
mod published;
mod run;
mod scenarios;
mod streams;
mod text;

use serde::Serialize;

pub use load::{Load, LoadError};
pub use properties::{Property, properties};
pub use published::{Source, published};
pub use run::{LabError, PhaseFigures, Run, ZoneFigures, run};
pub use scenarios::{Outcome, Scenario, scenarios};
pub use streams::{StreamPhase, Streams, StreamsError};
pub use text::{properties_text, scenarios_text};

/// The machine that is taken if none is given.
pub const MACHINE: &str = include_str!("../../../lab/8-gib.toml");
/// The workload that is taken if none is given.
pub const STREAMS: &str = include_str!("../../../lab/tiobench.toml");

/// All runs of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fairzone {
    /// of this form
    pub schema_version: u32,
    /// where all random numbers began
    pub seed: u64,
    /// what the machine is
    pub machine: String,
    /// what the workload is
    pub workload: String,
    /// policy by policy, by number of threads
    pub runs: Vec<Run>,
}
