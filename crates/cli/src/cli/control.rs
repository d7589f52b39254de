//! Options of the commands that control a service.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use isotherm::units;

/// The service to control.
#[derive(Debug, Args)]
pub struct Control {
    /// Socket of the service [default: /run/isotherm/control.sock; for users other than root
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

/// The tasks of `service`.
#[derive(Debug, Subcommand)]
pub enum ServiceTask {
    /// Show its state: hot and cold memory, its actions, and its cost
    Status(Status),
    /// Stop acting, and keep watching; a recorder writes no snapshots until resume
    Pause(Control),
    /// Act again
    Resume(Control),
    /// Replace its schemes
    Commit(Commit),
    /// Change the cost or the intervals of watching
    Attributes(SetAttributes),
    /// Watch further processes, or stop watching processes
    Targets(SetTargets),
    /// Start or end a record that the service writes
    Record(Recording),
    /// End the service
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
    /// File with the new schemes: TOML if its name ends in .toml, else one scheme per line. A
    /// scheme with the name of a previous one continues its statistics; the scheme of isotherm
    /// reclaim is called reclaim
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
    /// Limit of the cost of watching, as a share of one CPU: own CPU time, plus the time that the
    /// targets lose
    #[arg(long, value_name = "SHARE", value_parser = units::budget)]
    pub budget: Option<u32>,
    /// Maximum number of TLB shootdowns per second that watching may cause; 0: as many as the
    /// budget allows
    #[arg(long, value_name = "N")]
    pub ipis: Option<u32>,
    /// Time from one clear of a page to the next
    #[arg(long, value_name = "auto|TIME", value_parser = units::interval)]
    pub interval: Option<Duration>,
    /// Time between clearing and reading accessed bits, with --monitor regions and pages
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub sample: Option<Duration>,
    /// Time from one snapshot to the next, with --monitor regions and pages; the ages of regions,
    /// in seconds, do not change
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub aggr: Option<Duration>,
    /// Time between two readings of the mappings
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub update: Option<Duration>,
    /// Minimum and maximum number of regions
    #[arg(long, value_name = "MIN..MAX", value_parser = units::regions)]
    pub regions: Option<(u32, u32)>,
    #[command(flatten)]
    pub of: Control,
}

/// Options of `service targets`.
#[derive(Debug, Args)]
#[group(id = "changed", required = true, multiple = true, args = ["add", "remove"])]
pub struct SetTargets {
    /// Also watch this process; repeatable
    #[arg(long, value_name = "PID")]
    pub add: Vec<i32>,
    /// Stop watching this process, for as long as it lives; repeatable
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

/// The tasks of `service record`.
#[derive(Debug, Subcommand)]
pub enum RecordingTask {
    /// Start a record of the service's snapshots; the service itself writes the file
    Start {
        /// Record to write; isotherm keeps an earlier record of that name as FILE.old
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Maximum size of the record; it ends there
        #[arg(long, value_name = "SIZE", value_parser = units::size)]
        max_size: Option<u64>,
        #[command(flatten)]
        of: Control,
    },
    /// End the record
    Stop {
        #[command(flatten)]
        of: Control,
    },
}
