//! `isotherm lab`.

mod fairzone;
mod fleet;
mod interleave;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Experiment, Lab};

/// Runs an experiment.
pub fn run(o: &Lab) -> Result<ExitCode> {
    match &o.experiment {
        Experiment::Fairzone(o) => fairzone::run(o),
        Experiment::Fleet(o) => fleet::run(o),
        Experiment::Interleave(o) => interleave::run(o),
        Experiment::Workload(o) => super::workload::run(o),
    }
}
