//! Fair zone allocation: the effect of each policy on streaming readers and writers.
//!
//! `docs/lab/fair-zone.md` describes the experiment.

mod load;
pub mod policies;
mod properties;
mod published;
mod run;
mod scenarios;
mod streams;
mod text;

use serde::Serialize;

use crate::paged::MachineSpec;

pub use load::{LabLoad, LoadError};
pub use properties::{Property, properties};
pub use published::{FigureSource, published};
pub use run::{LabError, PhaseFigures, Run, ZoneFigures, run};
pub use scenarios::{PolicyOutcome, Scenario, scenarios};
pub use streams::{StreamPhase, Streams, StreamsError};
pub use text::{properties_text, scenarios_text};

/// The default machine.
pub const MACHINE_TOML: &str = include_str!("../../../lab/8-gib.toml");
/// The default workload.
pub const STREAMS_TOML: &str = include_str!("../../../lab/tiobench.toml");

/// Version of the formats: `docs/abi/testing/lab.md`.
const SCHEMA_VERSION: u32 = 1;

/// All runs of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fairzone {
    /// version of this format
    pub schema_version: u32,
    /// seed of all random numbers
    pub seed: u64,
    /// description of the machine
    pub machine: String,
    /// description of the workload
    pub workload: String,
    /// runs by policy, then by number of threads
    pub runs: Vec<Run>,
}

impl Fairzone {
    /// The runs of a workload on a machine.
    #[must_use]
    pub fn new(seed: u64, machine: &MachineSpec, load: &LabLoad, runs: Vec<Run>) -> Self {
        let (machine, workload) = (machine.about.clone(), load.about().to_owned());
        Fairzone { schema_version: SCHEMA_VERSION, seed, machine, workload, runs }
    }
}

/// Scenarios or properties as JSON, below the key `name`.
#[must_use]
pub fn results_json(seed: u64, name: &str, results: &impl Serialize) -> serde_json::Value {
    serde_json::json!({ "schema_version": SCHEMA_VERSION, "seed": seed, name: results })
}
