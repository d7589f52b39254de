//! Programs without huge pages, regardless of the setting of the machine: this program starts itself, which
//! refuses them for itself and then executes the program.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::thread::disable_transparent_huge_pages;

use crate::process::{self, ProcessCpus};

/// The argument with which the bench starts itself.
const ARGUMENT: &str = "--be-without-huge-pages";

/// A command that starts `program`, with huge pages or without.
pub fn command(cpus: ProcessCpus, program: &Path, huge: bool) -> Result<Command> {
    if huge {
        return process::command(cpus, program);
    }
    let mut command = process::command(cpus, std::env::current_exe()?)?;
    command.arg(ARGUMENT).arg(program);
    Ok(command)
}

/// If the command line requests it, becomes that program. Does nothing otherwise.
pub fn run_if_asked() -> Result<()> {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_none_or(|word| word != ARGUMENT) {
        return Ok(());
    }
    let program = words.next().context("no program")?;
    disable_transparent_huge_pages(true)?;
    // A program keeps this setting, and so do its children.
    Err(Command::new(program).args(words).exec().into())
}
