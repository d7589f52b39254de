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
    /// Fair zone allocation: what each policy of Linux 3.12 to 4.8 does to those who read and write
    /// files
    Fairzone(Fairzone),
    /// Weighted interleave: what weights make of nodes of different speed, beside what was published
    Interleave(InterleaveLab),
    /// Touch memory in a known way, to be watched, and write what was really touched
    Workload(Workload),
}

/// Options of `lab fairzone`.
#[derive(Debug, Args)]
pub struct Fairzone {
    /// The machine, in a file [default: 8 GiB in one node]
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// off, baseline, v1, landed, node-lru, high-only, or rules in a file; may be given several
    /// times [default: all of these]
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Vec<String>,
    /// What is read and written, in a file, or one of isotherm lab workload [default: like tiobench, a
    /// file of twice the memory is written, then read]
    #[arg(long, value_name = "NAME|FILE")]
    pub workload: Option<String>,
    /// Numbers of threads [default: as the workload says]
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
    /// Where all random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Instead, what each policy does in the states that the mails of 2014 argue about
    #[arg(long, conflicts_with_all = ["machine", "policy", "workload", "threads", "properties", "output"])]
    pub scenarios: bool,
    /// Instead, try what is said of the policies on N machines that are drawn from the seed
    #[arg(long, value_name = "N", conflicts_with_all = ["machine", "policy", "workload", "threads", "output"],
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub properties: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw a picture, .png or .svg
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// What to draw
    #[arg(long, value_enum, default_value = "ages", requires = "output")]
    pub figure: Figure,
}

/// What `lab fairzone -o` draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// how old pages are when they leave each zone, with the first number of threads
    Ages,
    /// rates of the last phase that reads one page after the other, over the number of threads
    Rates,
}

/// Options of `lab interleave`.
#[derive(Debug, Args)]
pub struct InterleaveLab {
    /// Instead, what weights would make of the machine in this file
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw a picture, .png or .svg
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// What to draw
    #[arg(long, value_enum, default_value = "weights", requires = "output")]
    pub figure: InterleaveFigure,
}

/// What `lab interleave -o` draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InterleaveFigure {
    /// throughput over weights, with the optimum
    Weights,
    /// mean latency over load
    Latency,
}
