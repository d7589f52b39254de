//! `isotherm agent`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::agent::{AgentOptions, run as watch};

use super::line::Line;
use crate::cli::Agent;

/// Writes rows to a lake until a signal, a request or `--duration` ends it.
pub fn run(o: &Agent) -> Result<ExitCode> {
    let lake = o.lake.required()?;
    let _ = o.watching.check()?;
    let mut targets = o.targets.selection(true);
    targets.all |= targets.is_empty();
    let options = AgentOptions {
        targets,
        look: o.watching.look,
        seed: o.watching.seed,
        lake,
        duration: o.duration,
        control: o.socket(),
        metrics: o.metrics.to.clone(),
        metrics_every: o.metrics.every,
    };
    watch(&options, &o.watching, Box::new(Line::new()))?;
    Ok(ExitCode::SUCCESS)
}
