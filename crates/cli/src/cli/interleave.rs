//! Options of `interleave`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use isotherm::interleave::{ChosenLayout, SetTo};
use isotherm::units;

/// Options of `interleave`.
#[derive(Debug, Args)]
pub struct Interleave {
    /// what to do
    #[command(subcommand)]
    pub task: Task,
}

/// The tasks of `interleave`.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Show nodes, distances, bandwidth and latency, tiers, and weights, with the source of each
    Show(Show),
    /// Measure bandwidth and latency of each node, and derive weights; the measurement saturates
    /// the machine
    Probe(Probe),
    /// Set the weights of the machine, or restore the previous ones
    Set(Set),
    /// Run a command, and interleave its memory by weight
    Run(Run),
    /// Move the memory of a process to nodes by weight: all of it, or only hot memory
    Apply(Apply),
    /// Compare where memory lies with where the weights place it. Exit status 1 if it lies
    /// elsewhere
    Verify(Verify),
}

/// Options of `interleave show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `interleave probe`.
#[derive(Debug, Args)]
pub struct Probe {
    /// Nodes to measure [default: all with memory]
    #[arg(long, value_name = "N,N,..", value_delimiter = ',')]
    pub nodes: Vec<u32>,
    /// Start without asking
    #[arg(long)]
    pub yes: bool,
    /// Time limit; isotherm then prints the results that it has
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::duration)]
    pub time: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw latency over bandwidth to this file, .png or .svg
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Options of `interleave set`.
#[derive(Debug, Args)]
pub struct Set {
    /// Weights (0=9,1=1); auto: the kernel derives them from bandwidth; default: the default of
    /// the kernel; restore: the weights before isotherm set any
    #[arg(value_name = "N=W,N=W,..|auto|default|restore", value_parser = units::set_to)]
    pub to: SetTo,
}

/// The nodes to place pages on, and their weights.
#[derive(Debug, Clone, Args)]
pub struct Layout {
    /// Nodes to place pages on [default: all with memory that the process may use]
    #[arg(long, value_name = "N,N,..", value_delimiter = ',')]
    pub nodes: Vec<u32>,
    /// Weights of the nodes, in the same order [default: those of the machine, or else by the
    /// bandwidth that firmware reports]
    #[arg(long, value_name = "W:W:..", value_parser = units::weights)]
    pub weights: Option<units::WeightList>,
}

impl Layout {
    /// The layout as the library's type.
    pub fn chosen(&self) -> ChosenLayout {
        ChosenLayout { nodes: self.nodes.clone(), weights: self.weights.clone() }
    }
}

/// Options of `interleave run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub layout: Layout,
    /// Time between two rounds of moving pages, if the kernel has no weighted interleave
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub interval: Duration,
    /// Command to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Options of `interleave apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// Process
    #[arg(short, long, value_name = "PID")]
    pub pid: i32,
    #[command(flatten)]
    pub layout: Layout,
    /// Watch the process first, then move only hot memory
    #[arg(long)]
    pub hot: bool,
    /// Time for which --hot watches the process
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    pub watch: Duration,
    /// Keep running, and also move memory that was added since, or that another program or the
    /// kernel has moved
    #[arg(long)]
    pub keep: bool,
    /// Time between two rounds of --keep
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration)]
    pub interval: Duration,
    /// End --keep after this time [default: when the process ends]
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "keep")]
    pub duration: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `interleave verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Process
    #[arg(short, long, value_name = "PID", required_unless_present = "kernel")]
    pub pid: Option<i32>,
    #[command(flatten)]
    pub layout: Layout,
    /// Instead, test each memory policy of the kernel on memory of isotherm's own, and compare
    /// where it lies with the rule
    #[arg(long, conflicts_with_all = ["pid", "nodes", "weights"])]
    pub kernel: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
