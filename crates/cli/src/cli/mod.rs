//! What may be typed.

mod config;
mod control;
mod groups;
mod interleave;
mod lab;
#[cfg(test)]
mod markdown;
mod metrics;
mod reclaim;
mod record;
mod report;
mod run;
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use isotherm::units;

pub use config::Config;
pub use control::{
    Commit, Control, Recording, RecordingTask, Service, ServiceTask, SetAttributes, SetTargets,
    Status,
};
pub use groups::command;
pub use interleave::{Apply, Interleave, Layout, Probe, Run, Set, Show, Task, Verify};
pub use isotherm::UsageError;
pub use lab::{Experiment, Fairzone, Figure, InterleaveFigure, InterleaveLab, Lab};
pub use metrics::Metrics;
pub use reclaim::{Aim, Reclaim};
pub use record::Record;
pub use report::{
    Accuracy, Advice, Cgroups, Heatmap, Input, Order, Over, Raw, Report, ReportKind, Selection,
    Shown, Summary,
};
pub use run::Run as RunSchemes;
pub use watching::{Targets, Watching};

/// Where recordings go, and reports look, if nothing else is said.
pub const DEFAULT_RECORD: &str = "isotherm.rec";

/// Finds the memory of a running program that is hot, and shows it.
#[derive(Debug, Parser)]
#[command(name = "isotherm", version, arg_required_else_help = true)]
pub struct Cli {
    /// Report more on standard error: what is done, and with -vv each step
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// what to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record which memory of a process is accessed how often
    Record(Record),
    /// Look at what runs for a few seconds, and print its regions; nothing is recorded
    Now(Now),
    /// Act on memory by what is seen of it, as schemes say
    Run(RunSchemes),
    /// Page out memory that nobody has touched for long, a little at a time, while memory is short
    #[command(args_override_self = true)]
    Reclaim(Reclaim),
    /// Speak with a running record, run or reclaim: ask how it goes, change what it does, end it
    Service(Service),
    /// Show what a record holds
    Report(Report),
    /// Write a record in another format
    Export(Export),
    /// Share memory between nodes by weight: show, measure, set, use and check weights
    Interleave(Interleave),
    /// Find out what works on this machine, look at its memory zones, make swap
    System(System),
    /// Make experiments: touch memory in a known way, or ask a simulated machine
    Lab(Lab),
}

/// Options of `system`.
#[derive(Debug, Args)]
pub struct System {
    /// what to do
    #[command(subcommand)]
    pub task: SystemTask,
}

/// What `system` does.
#[derive(Debug, Subcommand)]
pub enum SystemTask {
    /// Tell what works on this machine, what does not, and what to do about it
    Doctor(Doctor),
    /// Show the memory zones of this machine: what is free, who allocates where, who has to wait
    Zones(Zones),
    /// Make swap in compressed memory, or take it away again
    Swap(Swap),
    /// Print what completes commands and options in a shell
    Completions {
        /// Shell to print them for
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command
    ManPages {
        /// Folder to write them to; it must be there
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

/// Options of `now`.
#[derive(Debug, Args)]
pub struct Now {
    #[command(flatten)]
    pub targets: Targets,
    /// Look for this long; memory is cold after --cold only
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = units::duration)]
    pub duration: Duration,
    /// which regions
    #[command(flatten)]
    pub order: Order,
    /// how they are shown
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub watching: Watching,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// An Arrow IPC stream: a row a snapshot, with list columns
    #[arg(long, required = true)]
    pub arrow: bool,
    /// which record
    #[command(flatten)]
    pub input: Input,
    /// File to write; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// Options of `system doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `lab workload`.
#[derive(Debug, Args)]
pub struct Workload {
    /// One of --list, or a file that describes one
    #[arg(value_name = "NAME|FILE", required_unless_present = "list")]
    pub name: Option<String>,
    /// Print the names there are
    #[arg(long)]
    pub list: bool,
    /// Where its layout and its random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write here, at the end, what was really touched
    #[arg(long, value_name = "FILE.json")]
    pub truth: Option<PathBuf>,
    /// End after this time, and go through the phases again until then [default: as the workload
    /// says]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
}

/// Options of `system swap`.
#[derive(Debug, Args)]
pub struct Swap {
    /// what to do
    #[command(subcommand)]
    pub task: SwapTask,
}

/// What `system swap` does.
#[derive(Debug, Subcommand)]
pub enum SwapTask {
    /// Make swap in compressed memory, used before all other, until restore or the next boot
    Zram {
        /// How much fits in, before compression
        #[arg(value_parser = units::size)]
        size: u64,
        /// What to call it, so that others may have their own; restore --name takes it away
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Take away what swap zram has made, and what measurements and tests that were killed have left; what it
    /// holds goes back to memory, if it fits
    Restore {
        /// Only what was made by this name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Also if processes have memory in it that are not below the one that started isotherm
        #[arg(long)]
        force: bool,
    },
}

/// Options of `system zones`.
#[derive(Debug, Args)]
pub struct Zones {
    /// Print what has happened since the last time, over and over, until Ctrl-C
    #[arg(short, long, conflicts_with = "command")]
    pub watch: bool,
    /// Time from one print of --watch to the next
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub interval: Duration,
    /// End --watch after this time
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "watch")]
    pub duration: Option<Duration>,
    /// Print JSON: an object, or one a line with --watch
    #[arg(long)]
    pub json: bool,
    /// Command to run; what has happened until it ends is shown
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
