//! `isotherm interleave run`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::run::{self, WAKE};
use isotherm::stop::Stop;

use crate::cli::{Run, UsageError};
use crate::commands::exec::exit;

/// Runs the command, and returns its exit status.
pub fn run(o: &Run) -> Result<ExitCode> {
    if o.interval < WAKE {
        return Err(UsageError::new(format!("make --interval {WAKE:?} or longer")).into());
    }
    let stop = Stop::at_signals()?;
    let status = run::run(&o.command, &o.layout.chosen(), o.interval, &stop)?;
    Ok(exit(status, &stop))
}
