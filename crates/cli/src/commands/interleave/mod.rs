//! `isotherm interleave`: memory distributed over nodes by weight.

mod apply;
mod probe;
mod run;
mod set;
mod show;
mod verify;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm::interleave::put_back_text;
use isotherm_linux::numa;

use crate::cli::{Interleave, Task};
use crate::log::say;

/// Runs the requested task.
pub fn run(o: &Interleave) -> Result<ExitCode> {
    sweep();
    match &o.task {
        Task::Show(o) => show::run(o),
        Task::Probe(o) => probe::run(o),
        Task::Set(o) => set::run(o),
        Task::Run(o) => run::run(o),
        Task::Apply(o) => apply::run(o),
        Task::Verify(o) => verify::run(o),
    }
}

fn root() -> &'static Path {
    Path::new("/")
}

/// Restores the weights that a killed run left behind. A failure is printed and does not stop the
/// command.
fn sweep() {
    match numa::sweep(root()) {
        Ok(done) if done.is_something() => say(format_args!(
            "isotherm: restored the weights after a run was killed: {}",
            put_back_text(&done)
        )),
        Ok(_) => {}
        Err(e) => say(format_args!("isotherm: cannot restore the weights of a killed run: {e}")),
    }
}
