//! Options of `interleave`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use isotherm::interleave::{Chosen, SetTo};
use isotherm::units;

/// Options of `interleave`.
#[derive(Debug, Args)]
pub struct Interleave {
    /// what to do
    #[command(subcommand)]
    pub task: Task,
}

/// What `interleave` does.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Show nodes, distances, bandwidth and latency, tiers, and weights, and where each comes from
    Show(Show),
    /// Measure bandwidth and latency of each node, which saturates the machine, and find weights
    Probe(Probe),
    /// Set the weights of the machine, or put back what was before
    Set(Set),
    /// Run a command whose memory is interleaved by weight
    Run(Run),
    /// Lay out the memory that a process has by weight: all of it, or what is hot
    Apply(Apply),
    /// Compare where memory lies with what the weights ask for. Exit status 1 if it lies elsewhere
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
    /// Begin without asking
    #[arg(long)]
    pub yes: bool,
    /// It takes this time at most; what it has by then is told
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::duration)]
    pub time: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw latency over bandwidth, .png or .svg
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Options of `interleave set`.
#[derive(Debug, Args)]
pub struct Set {
    /// Weights (0=9,1=1); auto: the kernel derives them from bandwidth; default: as if nobody had set
    /// any; restore: what was before isotherm has set some
    #[arg(value_name = "N=W,N=W,..|auto|default|restore", value_parser = units::set_to)]
    pub to: SetTo,
}

/// Which nodes, and how much of each.
#[derive(Debug, Clone, Args)]
pub struct Layout {
    /// Nodes [default: all with memory that the process may use]
    #[arg(long, value_name = "N,N,..", value_delimiter = ',')]
    pub nodes: Vec<u32>,
    /// Their weights, in the same order [default: those of the machine, or else by the bandwidth that
    /// firmware tells]
    #[arg(long, value_name = "W:W:..", value_parser = units::weights)]
    pub weights: Option<units::WeightList>,
}

impl Layout {
    /// The same for the library.
    pub fn chosen(&self) -> Chosen {
        Chosen { nodes: self.nodes.clone(), weights: self.weights.clone() }
    }
}

/// Options of `interleave run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub layout: Layout,
    /// Where the kernel has no weighted interleave: time between two rounds of moving pages
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
    /// Only what is hot: watch the process for a while first
    #[arg(long)]
    pub hot: bool,
    /// How long it is watched
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    pub watch: Duration,
    /// Stay, and lay out again what has come since, or was moved by somebody else
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
    /// Instead, try each memory policy of the kernel on memory of our own, and compare where that lies
    /// with the rule
    #[arg(long, conflicts_with_all = ["pid", "nodes", "weights"])]
    pub kernel: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
