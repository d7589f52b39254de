//! `isotherm agent`.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use isotherm::agent::{AgentOptions, run as watch};
use isotherm::session::{Progress, Silent};

use super::line::StatusLine;
use crate::cli::{Agent, UsageError};

/// Writes rows to a lake until a signal, a request or `--duration` ends it.
pub fn run(o: &Agent) -> Result<ExitCode> {
    let lake = o.lake.required()?;
    let _ = o.watching.check()?;
    let mut targets = o.targets.selection(true);
    if !targets.command.is_empty() {
        let text = "agent watches running processes: give --pid PID, --comm NAME, --cgroup PATH, or none of these for \
                    all processes; isotherm record --lake DIR -- COMMAND starts a command and writes its rows";
        return Err(UsageError::new(text).into());
    }
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
    // In the logs of many machines, a line every few seconds would outgrow the rows.
    let line = std::io::stderr().is_terminal();
    let progress: Box<dyn Progress> =
        if line { Box::new(StatusLine::new()) } else { Box::new(Silent) };
    watch(&options, &o.watching, progress)?;
    Ok(ExitCode::SUCCESS)
}
