//! `isotherm interleave run`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::run::{self, WAKE};
use isotherm::stop::{Stop, StopCause};

use crate::cli::{Run, UsageError};

/// Runs the command, and returns its exit status.
pub fn run(o: &Run) -> Result<ExitCode> {
    if o.interval < WAKE {
        return Err(UsageError::new(format!("make --interval {WAKE:?} or longer")).into());
    }
    let stop = Stop::at_signals()?;
    let status = run::run(&o.command, &o.layout.chosen(), o.interval, &stop)?;
    Ok(exit(status, &stop))
}

/// The exit status of the command, or 128 plus the number of the signal that ended isotherm.
fn exit(status: Option<u8>, stop: &Stop) -> ExitCode {
    let by_signal = match stop.cause() {
        Some(StopCause::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        _ => 1,
    };
    ExitCode::from(status.unwrap_or(by_signal))
}
