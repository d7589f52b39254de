//! The command line: commands, options and values.

mod agent;
mod config;
mod control;
mod exec;
mod file_targets;
mod files;
mod fleet;
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
mod top;
mod watching;
mod web;
mod whatif;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use isotherm::units;

use self::file_targets::FileTargets;

pub use agent::{Agent, LAKE_OF_PROCESSES, Lake};
pub use config::Config;
pub use control::{
    Commit, Control, Recording, RecordingTask, Service, ServiceTask, SetAttributes, SetTargets,
    Status,
};
pub use exec::Exec;
pub use files::Files;
pub use fleet::{CompactFleet, Fleet, FleetTask, ReportOfFleet};
pub use groups::command;
pub use interleave::{Apply, Interleave, Probe, Run, Set, Show, Task, Verify};
pub use isotherm::UsageError;
pub use lab::{Experiment, Fairzone, Figure, FleetLab, InterleaveFigure, InterleaveLab, Lab};
pub use metrics::Metrics;
pub use reclaim::Reclaim;
pub use record::Record;
pub use report::{
    Accuracy, Advice, Cgroups, Code, Heatmap, Input, Need, NeedAsked, Order, Over, Part, Raw,
    Report, ReportKind, Selection, Summary, ViewOptions,
};
pub use run::Run as RunSchemes;
pub use top::{ColorOption, Top};
pub use watching::{SERVICE_OPTIONS, TARGET_OPTIONS, Targets, Watching};
pub use web::Web;
pub use whatif::WhatIf;

/// The default file of recordings and reports.
pub const DEFAULT_RECORD: &str = "isotherm.rec";

/// Find the hot memory of running programs, show it, and act on it.
#[derive(Debug, Parser)]
#[command(name = "isotherm", version, arg_required_else_help = true)]
pub struct Cli {
    /// Report more on standard error: actions, and with -vv each step
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
    /// Watch processes for a few seconds, and print their regions, without recording
    Now(Now),
    /// Watch processes on the terminal as they run, with heat maps; or a service, or a record
    Top(Box<Top>),
    /// Measure how much memory processes need, and how much could be reclaimed
    Need(NeedNow),
    /// Show which files the page cache holds, by file, folder, control group, process or file system
    Files(Files),
    /// Watch all processes of this machine, and write each minute a row for each control group, for
    /// questions about many machines
    Agent(Box<Agent>),
    /// Act on memory by how it is accessed, according to schemes
    Run(RunSchemes),
    /// Page out memory that no process has touched for a long time, in small steps, while memory is
    /// short
    #[command(args_override_self = true)]
    Reclaim(Reclaim),
    /// Run a command, and lock its hot memory or request huge pages, by the advice of an earlier run
    Exec(Exec),
    /// Control a running record, run, reclaim or agent: show its state, change its settings, end it
    Service(Service),
    /// Show the contents of a record
    Report(Report),
    /// Show live processes, a running service or records in a browser
    Web(Box<Web>),
    /// Play a record through schemes, memory limits or tiers: how much each would save, and how much would return
    #[command(name = "whatif")]
    WhatIf(Box<WhatIf>),
    /// Work with the rows that isotherm agent writes on many hosts: answer questions, or copy them to fewer files
    Fleet(Fleet),
    /// Make a record of a recording of another tool: damo, perf or trace-cmd
    Import(Import),
    /// Write a record in another format
    Export(Export),
    /// Cut a record by time, address or target, merge records, lengthen their intervals, or repair
    /// one
    Edit(Edit),
    /// Distribute memory over nodes by weight: show, measure, set, apply and check weights
    Interleave(Interleave),
    /// Check this machine, show its memory zones, create swap
    System(System),
    /// Run experiments: touch memory in a known way, or simulate a machine
    Lab(Lab),
    /// The same as system doctor
    #[command(hide = true)]
    Doctor(Doctor),
}

/// Options of `system`.
#[derive(Debug, Args)]
pub struct System {
    /// what to do
    #[command(subcommand)]
    pub task: SystemTask,
}

/// The tasks of `system`.
#[derive(Debug, Subcommand)]
pub enum SystemTask {
    /// Check which features work on this machine, and print a remedy for each that does not
    Doctor(Doctor),
    /// Show the memory zones of this machine: free memory, allocations by zone, and stalls
    Zones(Zones),
    /// Create swap in compressed memory, or remove it
    Swap(Swap),
    /// Print a script that completes commands and options in a shell
    Completions {
        /// Shell that will run the script
        shell: clap_complete::Shell,
    },
    /// Write libisotherm-alloc.so, so that a service can load it by LD_PRELOAD and isotherm record
    /// --alloc can sample its allocations later
    AllocLibrary {
        /// Existing folder to write the library to
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Write a manual page for each command
    ManPages {
        /// Existing folder to write the pages to
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

/// Options of `now`.
#[derive(Debug, Args)]
pub struct Now {
    #[command(flatten)]
    pub targets: Targets,
    /// Watch for this long; memory is cold only if it was untouched for --cold
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = units::duration)]
    pub duration: Duration,
    /// which regions
    #[command(flatten)]
    pub order: Order,
    /// how they are shown
    #[command(flatten)]
    pub shown: ViewOptions,
    #[command(flatten)]
    pub watching: Watching,
}

/// Options of `need`.
#[derive(Debug, Args)]
pub struct NeedNow {
    #[command(flatten)]
    pub targets: Targets,
    #[command(flatten)]
    pub files: FileTargets,
    /// Watch for this long; ages up to two thirds of it are known
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = units::duration)]
    pub duration: Duration,
    /// the objective, and the rows
    #[command(flatten)]
    pub asked: NeedAsked,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub watching: Watching,
}

/// Reads a value by its name.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [(T, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let find = move |word: String| all.into_iter().find(|(_, name)| *name == word);
    PossibleValuesParser::new(all.map(|(_, name)| name))
        .try_map(move |word| find(word).map(|(value, _)| value).ok_or("no such value"))
}

/// The path of a record that takes its place once it is whole.
fn whole_record() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path == Path::new("-") {
        true => Err("this record is written to a file, not to standard output: give its path"),
        false => Ok(path),
    })
}

/// Options of `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Recording of DAMON's results: a record of damo (json_compressed, json, or the binary record of damo 1),
    /// perf.data, or text of perf script or trace-cmd report. Its content determines the format. - is standard
    /// input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Record to write
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_RECORD, value_parser = whole_record())]
    pub output: PathBuf,
    /// Sampling interval of the recording, if the file does not have it [default: a 20th of the
    /// aggregation interval]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub sample: Option<Duration>,
    /// Aggregation interval of the recording, if the file does not have it [default: the mean time
    /// between two snapshots]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub aggr: Option<Duration>,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Format to write
    #[arg(long, value_name = "FORMAT", required_unless_present = "arrow")]
    pub format: Option<ExportFormat>,
    /// Write an Arrow IPC stream: the same as --format arrow
    #[arg(long, conflicts_with = "format")]
    pub arrow: bool,
    /// which record
    #[command(flatten)]
    pub input: Input,
    /// File to write, or for Parquet the folder; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// Options of `edit`.
#[derive(Debug, Args)]
pub struct Edit {
    /// Records to read; several become one, and must be in order of time
    #[arg(value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub files: Vec<PathBuf>,
    /// Record to write
    #[arg(short, long, value_name = "FILE", value_parser = whole_record())]
    pub output: PathBuf,
    /// Keep only this part of each recording, counted from its beginning (10s..20s)
    #[arg(long, value_name = "FROM..TO", value_parser = units::times)]
    pub time: Option<std::ops::Range<Duration>>,
    /// Keep only these addresses (0x7f0000000000..0x7f0010000000)
    #[arg(long, value_name = "FROM..TO", value_parser = units::addresses)]
    pub addr: Option<isotherm_core::AddrRange>,
    /// Keep only this target: its pid, a part of its command line, or its number in the record; repeatable
    #[arg(long, value_name = "PID|NAME|NUMBER")]
    pub target: Vec<String>,
    /// Join snapshots to ones of at least this length, with the means of their regions
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub aggr: Option<Duration>,
    /// Leave out damaged parts, and write an end if it is missing
    #[arg(long)]
    pub repair: bool,
}

/// The formats of `export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Arrow IPC stream: one row per snapshot, with list columns
    Arrow,
    /// Record of damo, json_compressed: damo reports the same counts of accesses and ages
    Damo,
    /// Text as perf script prints it: a line per region
    PerfScript,
    /// Parquet: tables of regions, snapshots and targets, below the folder --output, by host and day
    Parquet,
    /// Trace of Perfetto, for ui.perfetto.dev: counters of hot, warm, cold and unknown bytes, and of bytes in swap
    Perfetto,
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
    /// Name of a workload from --list, or a file that describes a workload
    #[arg(value_name = "NAME|FILE", required_unless_present = "list")]
    pub name: Option<String>,
    /// Print the names of all workloads
    #[arg(long)]
    pub list: bool,
    /// Seed of the layout and of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write to this file, at the end, which memory was really touched
    #[arg(long, value_name = "FILE.json")]
    pub truth: Option<PathBuf>,
    /// End after this time, and repeat the phases until then [default: as the workload defines]
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

/// The tasks of `system swap`.
#[derive(Debug, Subcommand)]
pub enum SwapTask {
    /// Create swap in compressed memory, used before all other swap; it stays until restore or the
    /// next boot
    Zram {
        /// Capacity, before compression
        #[arg(value_parser = units::size)]
        size: u64,
        /// Name of this swap, so that other users may create their own; restore --name removes it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Remove the swap that zram created, and swap that killed measurements and tests left behind;
    /// its content moves back to memory, if it fits
    Restore {
        /// Remove only the swap of this name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Remove it even if a process has memory in swap and is neither the parent of isotherm nor
        /// a descendant of that parent
        #[arg(long)]
        force: bool,
    },
}

/// Options of `system zones`.
#[derive(Debug, Args)]
pub struct Zones {
    /// Print the changes since the last print, repeatedly, until Ctrl-C
    #[arg(short, long, conflicts_with = "command")]
    pub watch: bool,
    /// Time between two prints of --watch
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub interval: Duration,
    /// End --watch after this time
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "watch")]
    pub duration: Option<Duration>,
    /// Print JSON: one object, or with --watch one per line
    #[arg(long)]
    pub json: bool,
    /// Command to run; isotherm shows the changes from its start to its end
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
