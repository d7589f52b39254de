//! `isotherm fleet report`.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::ReportOfFleet;
use crate::log::say;

/// Answers the questions. The program that does it prints its own errors.
pub fn run(o: &ReportOfFleet) -> Result<ExitCode> {
    let status = o.report()?.run()?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(path) = &o.html {
        say(format_args!("wrote {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
