//! `isotherm lab interleave`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm::text_file::text_of;
use isotherm_report::{Lines, lines_picture};
use isotherm_sim::lab::interleave::{
    Loads, NodesSpec, PUBLISHED_TOML, Published, WeightCurve, predict,
};
use serde::Serialize;

use crate::cli::{InterleaveFigure, InterleaveLab, UsageError};
use crate::commands::report::output::{self, Output};
use isotherm::lab::interleaving::{latency, throughput};

/// Predicts the published figures, or those of a given machine.
pub fn run(o: &InterleaveLab) -> Result<ExitCode> {
    let output = o.output.as_deref().map(Output::picture).transpose()?;
    if let Some(path) = &o.machine {
        let found = machine(path)?.forecast();
        let curves: Vec<WeightCurve> = found.curve.iter().cloned().collect();
        let lines = || figure(o, &curves, found.latency.as_ref());
        return show(o, output.as_ref(), &found, || found.text(), lines);
    }
    let found = predict(&Published::parse(PUBLISHED_TOML)?);
    let lines = || figure(o, &found.curves, found.latency.as_ref());
    show(o, output.as_ref(), &found, || found.text(), lines)
}

fn show(
    o: &InterleaveLab,
    output: Option<&Output>,
    found: &impl Serialize,
    text: impl FnOnce() -> String,
    lines: impl FnOnce() -> Result<Lines>,
) -> Result<ExitCode> {
    match output {
        None => output::show(o.json, found, text),
        Some(output) => {
            let lines = lines()?;
            output.write(found, text, || lines_picture(&lines))
        }
    }
}

fn figure(o: &InterleaveLab, curves: &[WeightCurve], loads: Option<&Loads>) -> Result<Lines> {
    let lines = match o.figure {
        InterleaveFigure::Weights => (!curves.is_empty()).then(|| throughput(curves)),
        InterleaveFigure::Latency => loads.map(latency),
    };
    let what = "there is nothing to draw: a chart of throughput requires two nodes, and one of \
                latency two nodes with idle_ns";
    lines.ok_or_else(|| UsageError::new(what).into())
}

fn machine(path: &Path) -> Result<NodesSpec> {
    let text = text_of(path, || {
        format!("{} cannot be read: name a file that describes a machine", path.display())
    })?;
    let usage = |e| UsageError::new(format!("{}: {e}", path.display())).into();
    NodesSpec::parse(&text).map_err(usage)
}
