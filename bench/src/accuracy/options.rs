//! What may be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use isotherm_sim::MachineKind;
use isotherm_sim::workload::{Workload, units};

use crate::setups::Setups;

/// How right the monitors are: each named workload, on the simulated machine and on the real one.
#[derive(Debug, Clone, Parser)]
pub struct Options {
    /// Only this one, or one that a file describes; may be given several times
    #[arg(long, value_name = "NAME|FILE")]
    pub workload: Vec<String>,
    /// Seed of layouts, accesses and monitors
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Watch each for so long [default: as long as it takes by itself]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Leave out this much at the begin of each phase where each moment is scored
    #[arg(long, value_name = "TIME", default_value = "600ms", value_parser = units::duration)]
    pub settle: Duration,
    /// Only on this machine
    #[arg(long)]
    only: Option<Only>,
    /// Write all figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// what watches
    #[command(flatten)]
    pub setups: Setups,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    Real,
    Simulated,
}

impl Options {
    /// Where to run.
    #[must_use]
    pub fn machines(&self) -> &'static [MachineKind] {
        match self.only {
            None => &[MachineKind::Simulated, MachineKind::Real],
            Some(Only::Simulated) => &[MachineKind::Simulated],
            Some(Only::Real) => &[MachineKind::Real],
        }
    }

    /// How long to watch a workload.
    #[must_use]
    pub fn length(&self, w: &Workload) -> Duration {
        self.seconds.map_or(w.length(), Duration::from_secs)
    }
}
