//! `isotherm lab workload`.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::output_file::OutputFile;
use isotherm::stop::Stop;
use isotherm::text_file::text_of;
use isotherm::workload::{RunningWorkload, check, populated};
use isotherm_linux::sys::{self, SleepingChild};
use isotherm_sim::GroundTruth;
use isotherm_sim::workload::{MemoryKind, NAMED, Named, Schedule, Workload, WorkloadLayout};

use crate::cli::{self, UsageError};
use crate::commands::report::output::print;
use crate::log::say;

/// Lists workloads, or runs one.
pub fn run(o: &cli::Workload) -> Result<ExitCode> {
    match &o.name {
        Some(name) if !o.list => touch(o, name)?,
        _ => list()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for named in NAMED {
        let w = named.workload()?;
        let mib = WorkloadLayout::new(&w, 1).len() >> 20;
        let seconds = w.length().as_secs();
        writeln!(out, "{:14} {mib:5} MiB {seconds:4} s  {}", named.name, w.about)?;
    }
    Ok(())
}

/// Runs a workload on memory of its own, and writes the truth about its touches.
fn touch(o: &cli::Workload, name: &str) -> Result<()> {
    let workload = find(name)?;
    let layout = WorkloadLayout::new(&workload, o.seed);
    let schedule = Schedule::new(&workload, &layout, o.duration)
        .map_err(|e| UsageError::new(e.to_string()))?;
    let file = o.truth.as_deref().map(OutputFile::create).transpose()?;
    let stop = Stop::at_signals()?;
    let arena = populated(&layout, o.seed)?;
    let populated = sys::monotonic();
    let shared = layout.mappings().iter().any(|&(_, memory)| memory == MemoryKind::Shared);
    let child = shared.then(SleepingChild::fork).transpose().context("cannot fork")?;
    let running = RunningWorkload::new(&workload, &layout, &arena, o.seed);
    print((running.addresses(child.as_ref()).to_string() + "\n").as_bytes())?;
    let truth = running.all(&schedule, &stop)?.truth(name, populated);
    say(last_line(&truth));
    file.map_or(Ok(()), |file| write(file, &truth)).context("cannot write the truth")?;
    Ok(check(&arena)?)
}

/// Finds a workload by its name, or reads it from a file.
fn find(name: &str) -> Result<Workload> {
    if let Some(named) = Named::find(name) {
        return Ok(named.workload()?);
    }
    let names: Vec<&str> = NAMED.iter().map(|n| n.name).collect();
    let unknown = || {
        let names = names.join(", ");
        format!("{name} is no workload: name one ({names}), or a file that describes one")
    };
    let text = text_of(Path::new(name), unknown)?;
    Workload::parse(&text).map_err(|e| UsageError::new(format!("{name}: {e}")).into())
}

fn write(file: OutputFile, truth: &GroundTruth) -> Result<()> {
    let mut out = BufWriter::new(file);
    truth.write(&mut out)?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    Ok(file.finish()?)
}

fn last_line(truth: &GroundTruth) -> String {
    let touches: u64 = (0..truth.stretches.len()).map(|i| truth.touches(i)).sum();
    let ends = truth.intervals.first().zip(truth.intervals.last());
    let seconds = ends.map_or(0.0, |(a, b)| b.end().since(a.start()).as_secs_f64());
    format!("workload {}: {touches} touches in {seconds:.1} s", truth.workload)
}
