//! `isotherm fleet`.

mod compact;
mod report;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::FleetTask;

/// Does a task about a lake.
pub fn run(task: &FleetTask) -> Result<ExitCode> {
    match task {
        FleetTask::Report(o) => report::run(o),
        FleetTask::Compact(o) => compact::run(o),
    }
}
