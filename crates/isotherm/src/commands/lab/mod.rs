//! `isotherm lab`.

mod fairzone;
mod figures;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Experiment, Lab};

/// Makes an experiment.
pub fn run(o: &Lab) -> Result<ExitCode> {
    match &o.experiment {
        Experiment::Fairzone(o) => fairzone::run(o),
    }
}
