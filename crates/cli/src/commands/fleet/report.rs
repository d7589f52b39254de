//! `isotherm fleet report`.

use std::process::ExitCode;

use anyhow::Result;

use super::compact::copy;
use crate::cli::{ReportOfFleet, UsageError};
use crate::log::say;

/// Answers the questions. The program that does it prints its own errors.
pub fn run(o: &ReportOfFleet) -> Result<ExitCode> {
    let report = o.report()?;
    let mut is_whole = true;
    if o.copy.is_some() {
        is_whole = copy(&o.lake, &report.lake, None)?.1;
        if !report.lake.exists() {
            let text = "no day of the lake ended an hour ago or earlier: wait for the end of the first day (UTC)";
            return Err(UsageError::new(text).into());
        }
    }
    let status = report.run()?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(path) = &o.html {
        say(format_args!("wrote {}", path.display()));
    }
    // Files that cannot be read are not in the answers.
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
