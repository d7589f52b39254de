//! What may be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use isotherm_core::Attrs;
use isotherm_linux::Way;
use isotherm_sim::MachineKind;
use isotherm_sim::workload::Workload;

/// How right the monitor is: each named workload, on the simulated machine and on the real one.
#[derive(Debug, Clone, Parser)]
pub struct Options {
    /// Only this one, or one that a file describes; may be given several times
    #[arg(long, value_name = "NAME|FILE")]
    pub workload: Vec<String>,
    /// Seed of layouts, accesses and the monitor
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Watch each for so long [default: as long as it takes by itself]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Only on this machine
    #[arg(long)]
    only: Option<Only>,
    /// How to look on the real machine
    #[arg(long, value_name = "WAY", default_value = "bpf", value_parser = Way::find)]
    pub look: Way,
    /// Write all figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Sampling interval in ms [default: what suits the way to look]
    #[arg(long)]
    sample: Option<u64>,
    /// Aggregation interval in ms [default: what suits the way to look]
    #[arg(long)]
    aggr: Option<u64>,
    /// Parts of a split
    #[arg(long, default_value_t = 4)]
    parts: u32,
    /// Sampling intervals between clears
    #[arg(long, default_value_t = 8)]
    every: u32,
    /// Split uniform regions too
    #[arg(long)]
    uniform: bool,
    /// Window in KiB
    #[arg(long, default_value_t = 64)]
    window: u64,
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

    /// Of the monitor.
    #[must_use]
    pub fn attrs(&self) -> Attrs {
        let (sample, aggr) = self.look.intervals();
        Attrs {
            sample: self.sample.map_or(sample, Duration::from_millis),
            aggr: self.aggr.map_or(aggr, Duration::from_millis),
            split_parts: self.parts,
            clear_every: self.every,
            split_uniform: self.uniform,
            window: self.window << 10,
            ..Attrs::default()
        }
    }
}
