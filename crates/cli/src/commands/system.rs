//! `isotherm system`: commands for the machine as a whole.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_linux::allocations;

use super::report::output::print;
use super::{doctor, swap, zones};
use crate::cli::{SystemTask, command};
use crate::log::say;

/// Runs the requested task.
pub fn run(task: SystemTask) -> Result<ExitCode> {
    match task {
        SystemTask::Doctor(o) => doctor::run(&o),
        SystemTask::Zones(o) => zones::run(&o),
        SystemTask::Swap(o) => swap::run(&o),
        SystemTask::Completions { shell } => completions(shell),
        SystemTask::ManPages { folder } => man_pages(&folder),
        SystemTask::AllocLibrary { folder } => alloc_library(&folder),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "isotherm", &mut text);
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn man_pages(folder: &Path) -> Result<ExitCode> {
    let written = clap_mangen::generate_to(command(), folder);
    written.with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn alloc_library(folder: &Path) -> Result<ExitCode> {
    let file = allocations::write_library(folder)?;
    say(format_args!("wrote {}; start a program with LD_PRELOAD set to this path", file.display()));
    Ok(ExitCode::SUCCESS)
}
