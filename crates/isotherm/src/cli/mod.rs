//! What may be typed.

mod interleave;
mod lab;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use isotherm_core::{AddrRange, Attrs, AttrsError};
use isotherm_linux::Way;
use isotherm_linux::damon::sysfs::IntervalsGoal;
use isotherm_record::{Limits, LimitsError};

use crate::units;

pub use interleave::{Apply, Interleave, Layout, Probe, Run, Set, SetTo, Show, Task, Verify};
pub use lab::{Experiment, Fairzone, Figure, InterleaveFigure, InterleaveLab, Lab};
pub use report::{Access, Accuracy, Heatmap, Over, Raw, Report, ReportKind, Selection, Summary};

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
    /// Show the memory zones of this machine: what is free, who allocates where, who has to wait
    Zones(Zones),
    /// Share memory between nodes by weight: show, measure, set, use and check weights
    Interleave(Interleave),
}

/// How to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// in the best way that works
    Auto,
    /// by our own monitor, in this way
    By(Way),
    /// by the kernel's
    Damon,
}

/// Options of `record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Process to watch; may be given several times
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<i32>,
    /// Watch the processes of this control group and of those below it, as they come and go, until it
    /// is removed: a path below the mount of cgroups (system.slice/ssh.service), or a directory; may be
    /// given several times
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Watch the physical memory of the machine, whoever uses it: by kernel DAMON where that is free,
    /// else by page_idle
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "command", "children"])]
    pub physical: bool,
    /// Only memory of this node, with --physical; may be given several times
    #[arg(long, value_name = "N", requires = "physical")]
    pub node: Vec<u32>,
    /// Only these addresses: physical ones with --physical, else those of the one process that is
    /// watched with --look damon; may be given several times
    #[arg(long, value_name = "FROM..TO", value_parser = units::addresses)]
    pub range: Vec<AddrRange>,
    /// Record nothing; tell whether this record is sound: its checksums, bounds, order, and that
    /// regions cover what is mapped. Exit status 1 if it is not
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub check: Option<PathBuf>,
    /// Record to write; an earlier record of that name is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub output: PathBuf,
    /// How to look: auto, bpf, bpf-probe, bpf-iter, clear_refs, page_idle, smaps or damon; auto is the
    /// first of these that works here (isotherm doctor), but damon only with --physical
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = units::way)]
    pub look: Look,
    /// Time between clearing and reading accessed bits [default: 20ms; 100ms for page_idle and
    /// smaps; 5ms for damon]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub sample: Option<Duration>,
    /// Time from one snapshot to the next [default: 400ms; 1s for clear_refs,
    /// page_idle and smaps; 100ms for damon]
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
    /// Have the kernel tune the intervals until this share of all accesses that it could see is seen
    /// within so many aggregation intervals, as 4%,3,5ms..10s; the last are bounds of the sampling
    /// interval (--look damon, Linux 6.15)
    #[arg(long, value_name = "SHARE,N,MIN..MAX", value_parser = units::intervals_goal)]
    pub intervals_goal: Option<IntervalsGoal>,
    /// Bytes that a step of a physical address stands for (--look damon, Linux 6.18)
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "physical")]
    pub addr_unit: Option<u64>,
    /// End after this time [default: when all targets have ended and no --cgroup is left, or at
    /// Ctrl-C]. A started command that still runs is then ended too (SIGTERM, after 5 s SIGKILL)
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

    /// The attributes of the kernel's monitor, with its own defaults. It takes part of ours.
    pub fn damon_attrs(&self) -> Result<Attrs, UsageError> {
        let default = Attrs::default();
        let ours = [
            ("--min-region", self.min_region != default.min_region_size),
            ("--window", self.window != default.window),
            ("--split", self.split != default.split_parts),
            ("--clear-every", self.clear_every != default.clear_every),
            ("--split-uniform", self.split_uniform),
            ("--extra-split", self.extra_split),
        ];
        if let Some((name, _)) = ours.iter().find(|(_, given)| *given) {
            let text = format!("kernel DAMON has its own rules for {name}: leave it out");
            return Err(UsageError(text));
        }
        let attrs = Attrs {
            sample: self.sample.unwrap_or(Duration::from_millis(5)),
            aggr: self.aggr.unwrap_or(Duration::from_millis(100)),
            update: self.update,
            min_regions: self.regions.0,
            max_regions: self.regions.1,
            ..default
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

/// Options of `zones`.
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
