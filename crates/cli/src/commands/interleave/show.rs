//! `isotherm interleave show`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::NodesOutput;
use isotherm_report::json;

use crate::cli::Show;
use crate::commands::report::output::print;

/// Prints the nodes with their figures.
pub fn run(o: &Show) -> Result<ExitCode> {
    let shown = NodesOutput::read()?;
    let text = if o.json { json(&shown)? + "\n" } else { shown.text() };
    print(text.as_bytes())
}
