//! Options of what speaks with a service.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use isotherm::units;

/// Which service.
#[derive(Debug, Args)]
pub struct Control {
    /// Socket of the service [default: /run/isotherm/control.sock; for others than root
    /// $XDG_RUNTIME_DIR/isotherm/control.sock]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// Options of `service`.
#[derive(Debug, Args)]
pub struct Service {
    /// what to do
    #[command(subcommand)]
    pub task: ServiceTask,
}

/// What `service` does.
#[derive(Debug, Subcommand)]
pub enum ServiceTask {
    /// Tell what it does: what is hot and cold, what it has done, and what it costs
    Status(Status),
    /// Have it act no more, and go on watching
    Pause(Control),
    /// Have it act again
    Resume(Control),
    /// Have it go on by other schemes
    Commit(Commit),
    /// Have it watch at another cost, or in other steps
    Attributes(SetAttributes),
    /// Have it watch these processes too, or no longer
    Targets(SetTargets),
    /// Have it write a record of what it sees, or end that
    Record(Recording),
    /// End it
    Stop(Control),
}

/// Options of `service status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub of: Control,
}

/// Options of `service commit`.
#[derive(Debug, Args)]
pub struct Commit {
    /// Schemes: TOML where the name ends in .toml, else one a line. One of the name of one before goes on
    /// with its statistics; that of isotherm reclaim is called reclaim
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub of: Control,
}

/// Options of `service attributes`.
#[derive(Debug, Args)]
#[group(id = "new", required = true, multiple = true, args = ["budget", "ipis", "interval", "sample", "aggr",
    "update", "regions"])]
pub struct SetAttributes {
    /// What watching may cost, as a share of one CPU: own CPU time, and what the targets lose by it
    #[arg(long, value_name = "SHARE", value_parser = units::budget)]
    pub budget: Option<u32>,
    /// TLB shootdowns that watching may cause in a second; 0: as many as the budget allows
    #[arg(long, value_name = "N")]
    pub ipis: Option<u32>,
    /// Time from one clear of a page to the next
    #[arg(long, value_name = "auto|TIME", value_parser = units::interval)]
    pub interval: Option<Duration>,
    /// Time between clearing and reading accessed bits, of --monitor regions and pages
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub sample: Option<Duration>,
    /// Time from one snapshot to the next, of --monitor regions and pages; ages of regions stay the times
    /// that they are
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub aggr: Option<Duration>,
    /// Time between two readings of the mappings
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub update: Option<Duration>,
    /// Least and greatest number of regions
    #[arg(long, value_name = "MIN..MAX", value_parser = units::regions)]
    pub regions: Option<(u32, u32)>,
    #[command(flatten)]
    pub of: Control,
}

/// Options of `service targets`.
#[derive(Debug, Args)]
#[group(id = "whom", required = true, multiple = true, args = ["add", "remove"])]
pub struct SetTargets {
    /// Watch this process too; may be given several times
    #[arg(long, value_name = "PID")]
    pub add: Vec<i32>,
    /// Watch this process no longer, as long as it lives; may be given several times
    #[arg(long, value_name = "PID")]
    pub remove: Vec<i32>,
    #[command(flatten)]
    pub of: Control,
}

/// Options of `service record`.
#[derive(Debug, Args)]
pub struct Recording {
    /// what to do
    #[command(subcommand)]
    pub task: RecordingTask,
}

/// What `service record` does.
#[derive(Debug, Subcommand)]
pub enum RecordingTask {
    /// Begin a record of what the service sees; it is the service that writes it
    Start {
        /// Record to write; an earlier record of that name is kept as FILE.old
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// It has at most this size, and ends there
        #[arg(long, value_name = "SIZE", value_parser = units::size)]
        max_size: Option<u64>,
        #[command(flatten)]
        of: Control,
    },
    /// Give the record its end
    Stop {
        #[command(flatten)]
        of: Control,
    },
}
