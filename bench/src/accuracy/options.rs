//! The options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use isotherm_core::units;
use isotherm_sim::MachineKind;
use isotherm_sim::workload::Workload;

use crate::setups::Setups;

/// Measure the accuracy of the monitors for each named workload, on the simulated machine and on the real
/// one.
#[derive(Debug, Clone, Parser)]
pub struct Options {
    /// Use only this workload, or one from a file; repeatable
    #[arg(long, value_name = "NAME|FILE")]
    pub workload: Vec<String>,
    /// Seed of layouts, accesses and monitors
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Watch each workload for this many seconds [default: its own duration]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Leave out this time at the beginning of each phase in the column F1
    #[arg(long, value_name = "TIME", default_value = "600ms", value_parser = units::duration)]
    pub settle: Duration,
    /// Use only this machine
    #[arg(long)]
    only: Option<Only>,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// the monitors
    #[command(flatten)]
    pub setups: Setups,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    Real,
    Simulated,
}

impl Options {
    /// The machines to use.
    pub fn machines(&self) -> &'static [MachineKind] {
        match self.only {
            None => &[MachineKind::Simulated, MachineKind::Real],
            Some(Only::Simulated) => &[MachineKind::Simulated],
            Some(Only::Real) => &[MachineKind::Real],
        }
    }

    /// The time for which to watch a workload.
    pub fn length(&self, w: &Workload) -> Duration {
        self.seconds.map_or(w.length(), Duration::from_secs)
    }
}
