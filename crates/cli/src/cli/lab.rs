//! Options of `lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Workload;

/// Options of `lab`.
#[derive(Debug, Args)]
pub struct Lab {
    /// which one
    #[command(subcommand)]
    pub experiment: Experiment,
}

/// The experiments.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// Fair zone allocation: simulate how each policy of Linux 3.12 to 4.8 affects reading and
    /// writing of files
    Fairzone(Fairzone),
    /// Write what the agents of a simulated fleet would have measured, and the truth
    Fleet(FleetLab),
    /// Weighted interleave: predict the effect of weights on nodes of different speed, compared
    /// with published figures
    Interleave(InterleaveLab),
    /// Touch memory in a known way, for a monitor to watch, and write which memory was really
    /// touched
    Workload(Workload),
}

/// Options of `lab fleet`.
#[derive(Debug, Args)]
pub struct FleetLab {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub hosts: u32,
    /// Number of days, from 5 January 2026 on
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=366))]
    pub days: u32,
    /// Control groups on each host
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub groups: u32,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// New folder to write the lake to
    #[arg(long, value_name = "DIR")]
    pub lake: PathBuf,
    /// Also write to this file the real savings and returns of page-out, by service and minimum
    /// age: one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `lab fairzone`.
#[derive(Debug, Args)]
pub struct Fairzone {
    /// File that describes the machine [default: 8 GiB in one node]
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Policy to simulate: off, baseline, v1, landed, node-lru, high-only, or a file with rules;
    /// repeatable [default: all of these]
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Vec<String>,
    /// Reads and writes to simulate: a file that describes them, or a name of isotherm lab workload
    /// [default: like tiobench, write a file of twice the memory, then read it]
    #[arg(long, value_name = "NAME|FILE")]
    pub workload: Option<String>,
    /// Numbers of threads [default: as the workload defines]
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Instead, show how each policy behaves in the states that the mails of 2014 discuss
    #[arg(long, conflicts_with_all = ["machine", "policy", "workload", "threads", "properties", "output"])]
    pub scenarios: bool,
    /// Instead, test the claims about the policies on N random machines, drawn from the seed
    #[arg(long, value_name = "N", conflicts_with_all = ["machine", "policy", "workload", "threads", "output"],
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub properties: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw a picture to this file, .png or .svg
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Figure to draw
    #[arg(long, value_enum, default_value = "ages", requires = "output")]
    pub figure: Figure,
}

/// The figures of `lab fairzone -o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// ages of pages when they leave each zone, with the first number of threads
    Ages,
    /// rates of the last phase that reads sequentially, over the number of threads
    Rates,
}

/// Options of `lab interleave`.
#[derive(Debug, Args)]
pub struct InterleaveLab {
    /// Instead, predict the effect of weights on the machine that this file describes
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw a picture to this file, .png or .svg
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Figure to draw
    #[arg(long, value_enum, default_value = "weights", requires = "output")]
    pub figure: InterleaveFigure,
}

/// The figures of `lab interleave -o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InterleaveFigure {
    /// throughput over weights, with the optimum
    Weights,
    /// mean latency over load
    Latency,
}
