//! What may be typed.

mod lab;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use isotherm_core::{Attrs, AttrsError};
use isotherm_linux::Way;
use isotherm_record::{Limits, LimitsError};

use crate::units;

pub use lab::{Experiment, Fairzone, Figure, Lab};
pub use report::{Access, Heatmap, Over, Raw, Report, ReportKind, Selection, Summary};

/// Options that make no sense: exit status 2.
#[derive(Debug)]
pub struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

impl UsageError {
    /// With a text that says what is wrong and what would be right.
    pub fn new(text: impl Into<String>) -> Self {
        UsageError(text.into())
    }
}

impl From<AttrsError> for UsageError {
    fn from(e: AttrsError) -> Self {
        UsageError(e.to_string())
    }
}

impl From<LimitsError> for UsageError {
    fn from(e: LimitsError) -> Self {
        UsageError(e.to_string())
    }
}

/// Where recordings go, and reports look, if nothing else is said.
pub const DEFAULT_RECORD: &str = "isotherm.rec";

/// Finds the memory of a running program that is hot, and shows it.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Cli {
    /// what to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record which memory of a process is accessed how often
    Record(Record),
    /// Show what a record holds
    Report(Report),
    /// Write a record in another format
    Export(Export),
    /// Tell what works on this machine, what does not, and what to do about it
    Doctor(Doctor),
    /// Touch memory in a known way, to be watched, and write what was really touched
    Workload(Workload),
    /// Make an experiment on a simulated machine
    Lab(Lab),
}

/// A way to look; none: the best one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(pub Option<Way>);

/// Options of `record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Process to watch; may be given several times
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<i32>,
    /// Record nothing; tell whether this record is sound: its checksums, bounds, order, and that
    /// regions cover what is mapped. Exit status 1 if it is not
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub check: Option<PathBuf>,
    /// Record to write; an earlier record of that name is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub output: PathBuf,
    /// How to look: auto, bpf, bpf-probe, bpf-iter, clear_refs, page_idle or smaps; auto is the first of
    /// these that works here (isotherm doctor)
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = units::way)]
    pub look: Look,
    /// Time between clearing and reading accessed bits [default: 20ms; 100ms for page_idle and smaps]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub sample: Option<Duration>,
    /// Time from one snapshot to the next [default: 400ms; 1s for clear_refs, page_idle and smaps]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub aggr: Option<Duration>,
    /// Time between two readings of the mappings
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub update: Duration,
    /// Least and greatest number of regions
    #[arg(long, value_name = "MIN..MAX", default_value = "100..1000", value_parser = units::regions)]
    pub regions: (u32, u32),
    /// Regions are cut at multiples of this size
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = units::size)]
    pub min_region: u64,
    /// Memory looked at in a region each sampling interval
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = units::size)]
    pub window: u64,
    /// Parts that a region is split into each aggregation interval
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub split: u32,
    /// Sampling intervals from one clear to the next at least, in a region whose heat is clear; 1 is
    /// the kernel's way, and each clear costs the target a TLB shootdown
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clear_every: u32,
    /// Split regions in which all looks agreed as well, as the kernel does
    #[arg(long)]
    pub split_uniform: bool,
    /// One part more when splitting has found nothing new, as the kernel does
    #[arg(long)]
    pub extra_split: bool,
    /// End after this time [default: when all targets have ended, or at Ctrl-C]. A started command
    /// that still runs is then ended too (SIGTERM, after 5 s SIGKILL)
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
    /// Watch the children of the processes as well; those of a started command always are
    #[arg(long)]
    pub children: bool,
    /// Where the random numbers begin [default: different each time, and in the record]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The record has at most this size, over all its files
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub max_size: Option<u64>,
    /// Keep the newest part of --max-size in N files instead of ending when it is reached
    #[arg(long, value_name = "N")]
    pub rotate: Option<u32>,
    /// Command to start and watch
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Record {
    /// The attributes of the monitor, if it looks in this way.
    pub fn attrs(&self, way: Way) -> Result<Attrs, UsageError> {
        let (sample, aggr) = way.intervals();
        let sample = self.sample.unwrap_or(sample);
        if sample < way.shortest_sample() {
            return Err(UsageError(format!(
                "--look {} tells nothing within {sample:?}: make --sample {:?} or longer",
                way.name(),
                way.shortest_sample(),
            )));
        }
        let attrs = Attrs {
            sample,
            aggr: self.aggr.unwrap_or(aggr),
            update: self.update,
            min_regions: self.regions.0,
            max_regions: self.regions.1,
            min_region_size: self.min_region,
            window: self.window,
            split_parts: self.split,
            clear_every: self.clear_every,
            split_uniform: self.split_uniform,
            extra_split: self.extra_split,
        };
        Ok(attrs.checked()?)
    }

    /// The limits of the record.
    pub fn limits(&self) -> Result<Limits, UsageError> {
        let limits = Limits { max_size: self.max_size, rotate: self.rotate };
        limits.file_size()?;
        Ok(limits)
    }
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// An Arrow IPC stream: a row a snapshot, with list columns
    #[arg(long, required = true)]
    pub arrow: bool,
    /// Record to read
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub input: PathBuf,
    /// File to write; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `workload`.
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
