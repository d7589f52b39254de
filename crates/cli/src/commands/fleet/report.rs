//! `isotherm fleet report`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::agent::LakePlace;

use super::compact::{copy, now};
use crate::cli::{ReportOfFleet, UsageError};
use crate::log::say;

/// All days of a lake ended an hour before this time from now, also on hosts whose clocks are ahead.
const ALL_ENDED_MS: i64 = 48 * isotherm_fleet::HOUR_MS;

/// Answers the questions. The program that does it prints its own errors.
pub fn run(o: &ReportOfFleet) -> Result<ExitCode> {
    let mut report = o.report()?;
    let mut is_whole = true;
    // It is deleted at the end.
    let temporary;
    match (&o.lake, &o.copy) {
        (LakePlace::Dir(_), _) => {}
        (LakePlace::Objects(_), Some(folder)) => {
            is_whole = copy(&o.lake, folder, None, now()?)?.1;
            if !folder.exists() {
                let text = "no day of the lake ended an hour ago or earlier: wait for the end of the first day (UTC), or \
                            leave out --copy";
                return Err(UsageError::new(text).into());
            }
        }
        (LakePlace::Objects(_), None) => {
            temporary = tempfile::tempdir().context("cannot create a temporary folder")?;
            report.folder = temporary.path().to_owned();
            is_whole = copy(&o.lake, &report.folder, None, now()? + ALL_ENDED_MS)?.1;
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
