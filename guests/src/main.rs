//! Boots real kernels and tests isotherm on them, or opens a shell in one.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use isotherm_guests::lab::Lab;
use isotherm_guests::suite::{self, RunOptions};
use isotherm_guests::table::ScenarioRow;
use isotherm_guests::topology::Topology;
use isotherm_guests::{guest, table};

/// Run isotherm on real kernels, under QEMU.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    command: Doing,
}

#[derive(Debug, Subcommand)]
enum Doing {
    /// Run scenarios, each on its kernels, and print a table; exit status 1 if one fails
    Run {
        /// Use only kernels of this series; repeatable
        #[arg(long, value_name = "SERIES")]
        kernel: Vec<String>,
        /// Keep the output of each guest in a folder here
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// Number of guests at a time
        #[arg(long, value_name = "N", default_value_t = suite::jobs())]
        jobs: usize,
        /// Run only these
        scenario: Vec<String>,
    },
    /// Boot a kernel of this series, and open a shell
    Shell {
        /// series of the kernel
        series: String,
        /// the machine: name of a file in topologies/
        #[arg(long, default_value = "three-nodes")]
        topology: String,
    },
}

fn main() -> ExitCode {
    match run(Options::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("guests: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all results were as expected.
fn run(doing: Doing) -> Result<bool> {
    let say = |text: &str| eprintln!("{text}");
    match doing {
        Doing::Run { kernel, keep, jobs, scenario } => {
            let asked = RunOptions {
                kernels: kernel,
                scenarios: scenario,
                keep,
                jobs,
                ..RunOptions::default()
            };
            let mut head = Some(table::head());
            let row = |outcome: &ScenarioRow| {
                print!("{}{}", head.take().unwrap_or_default(), outcome.lines());
            };
            suite::run(&asked, row, say)
        }
        Doing::Shell { series, topology } => {
            let topology = Topology::named(&topology)?;
            let lab = Lab::open()?;
            let kernel = lab.fetched(&series, say)?;
            say("Ctrl-A X ends the guest, and so does `exit`");
            guest::shell(&lab, &kernel, &topology)?;
            Ok(true)
        }
    }
}
