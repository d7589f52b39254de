//! `isotherm interleave show`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::NodesOutput;

use crate::cli::Show;
use crate::commands::report::output::show;

/// Prints the nodes with their figures.
pub fn run(o: &Show) -> Result<ExitCode> {
    let shown = NodesOutput::read()?;
    show(o.json, &shown, || shown.text())
}
