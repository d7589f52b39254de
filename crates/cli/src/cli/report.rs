//! Options of `report`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use isotherm::reading;
use isotherm::units;
use isotherm_core::{AddrRange, Thresholds};
use isotherm_report::{AdviceThresholds, By, Choice, CodeBy, Objective, Pick, SortBy};

use super::{DEFAULT_RECORD, named};

const MILLISECOND: Duration = Duration::from_millis(1);
/// Kinds of rows of a report.
const BY: [(By, &str); 2] = [(By::Cgroup, "cgroup"), (By::Process, "process")];

/// The record to read.
#[derive(Debug, Clone, Args)]
pub struct Input {
    /// Record to read; - is standard input
    #[arg(short = 'i', long = "input", value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub path: PathBuf,
    /// Leave out damaged parts, instead of ending there; every report states how much is missing
    #[arg(long)]
    pub skip_damaged: bool,
}

/// A part of a record.
#[derive(Debug, Clone, Args)]
pub struct Part {
    /// which record
    #[command(flatten)]
    pub input: Input,
    /// Show only this part of the recording, counted from its beginning (10s..20s)
    #[arg(long, value_name = "FROM..TO", value_parser = units::times)]
    pub time: Option<Range<Duration>>,
    /// Show only this target: its pid, a part of its command line, or its number in the record; repeatable
    #[arg(long, value_name = "PID|NAME|NUMBER")]
    pub target: Vec<String>,
}

/// The record, the part of it to show, and the thresholds of hot and cold.
#[derive(Debug, Clone, Args)]
pub struct Selection {
    /// which part of it
    #[command(flatten)]
    pub part: Part,
    /// how it is shown
    #[command(flatten)]
    pub shown: ViewOptions,
}

impl Input {
    /// The same as the library's type.
    pub fn input(&self) -> reading::Input {
        reading::Input { path: self.path.clone(), skip_damaged: self.skip_damaged }
    }
}

impl Part {
    /// The same as the library's type.
    pub fn part(&self) -> reading::RecordSelection {
        reading::RecordSelection {
            input: self.input.input(),
            time: self.time.clone(),
            targets: self.target.clone(),
        }
    }

    /// All of the record at `path`.
    pub fn all(path: &Path) -> Self {
        let input = Input { path: path.to_owned(), skip_damaged: false };
        Part { input, time: None, target: Vec::new() }
    }
}

impl Selection {
    /// All of the record at `path`.
    pub fn all(path: &Path, shown: ViewOptions) -> Self {
        Selection { part: Part::all(path), shown }
    }
}

/// Options of all reports of memory.
#[derive(Debug, Clone, Args)]
pub struct ViewOptions {
    /// Show only these addresses (0x7f0000000000..0x7f0010000000)
    #[arg(long, value_name = "FROM..TO", value_parser = units::addresses)]
    pub addr: Option<AddrRange>,
    #[command(flatten)]
    pub heat: HeatLimits,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What counts as hot, and as cold.
#[derive(Debug, Clone, Copy, Args)]
pub struct HeatLimits {
    /// Memory is hot if it is touched at this rate in Hz or more
    #[arg(long, value_name = "HZ", default_value = "10", value_parser = units::rate)]
    pub hot: f64,
    /// Memory is cold if it is untouched for this long or longer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration)]
    pub cold: Duration,
}

impl HeatLimits {
    /// The definitions of hot and cold.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds { hot_hz: self.hot, cold_age: self.cold }
    }
}

/// Options of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// which one
    #[command(subcommand)]
    pub kind: ReportKind,
}

/// The reports.
#[derive(Debug, Subcommand)]
pub enum ReportKind {
    /// Show how much memory is hot, warm and cold, the working set, and where the hot memory lies
    Summary(Summary),
    /// Draw heat as colour, over time (across) and addresses (up): a PNG, an SVG, or in the
    /// terminal
    Heatmap(Heatmap),
    /// Show how much memory is in use: as a distribution, or over time
    Wss(Over),
    /// Show the number of regions, compared with the bounds, and their sizes, which determine accuracy and cost
    Regions(Over),
    /// Show the regions of one snapshot
    Access(Access),
    /// Print every region of every snapshot, one per line; as JSON, one snapshot per line
    Raw(Raw),
    /// Show how much memory the targets need, how much they could give up, and how much would return
    Need(Need),
    /// Recommend which ranges to lock, make huge or page out, and how big a memory limit to set
    Advice(Advice),
    /// Show how much memory is hot, warm, cold, unknown or saved, by control group or process, over
    /// time
    Cgroups(Cgroups),
    /// Show how much hot, warm and cold memory each function has, in a recording with --stacks or --alloc: a
    /// table, a flame graph, folded stacks or a profile
    Code(Code),
    /// Measure how accurate a recording of `isotherm lab workload` is, compared with the truth that it wrote
    Accuracy(Accuracy),
}

/// Options of `report summary`.
#[derive(Debug, Args)]
pub struct Summary {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Maximum number of mappings to name
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub top: usize,
}

/// Options of `report heatmap`.
#[derive(Debug, Args)]
pub struct Heatmap {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Picture to write, PNG or SVG by its name; - writes a PNG to standard output, unless that is
    /// a terminal [default: draw in the terminal]
    #[arg(short, long, value_name = "FILE.png|FILE.svg|-")]
    pub output: Option<PathBuf>,
}

/// Options of `report wss` and `report regions`.
#[derive(Debug, Args)]
pub struct Over {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Percentiles over time: for each P, print the smallest value that was not exceeded for P % of
    /// the time
    #[arg(
        long, value_name = "P,P,...", default_value = "0,25,50,75,100", value_delimiter = ',',
        value_parser = units::percent
    )]
    pub percentiles: Vec<f64>,
    /// Print the values over time instead of percentiles; pictures and JSON have both
    #[arg(long)]
    pub over_time: bool,
    /// Picture to write, PNG or SVG by its name; - writes a PNG to standard output, unless that is
    /// a terminal [default: print text]
    #[arg(short, long, value_name = "FILE.png|FILE.svg|-")]
    pub output: Option<PathBuf>,
}

/// Options of `report access`.
#[derive(Debug, Args)]
pub struct Access {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Show the snapshot that covers this time, counted from the beginning of the recording
    /// [default: the last one]
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "snapshot")]
    pub at: Option<Duration>,
    /// Show the snapshot with this number
    #[arg(long, value_name = "N")]
    pub snapshot: Option<u64>,
    /// which regions
    #[command(flatten)]
    pub order: Order,
}

/// The regions of a snapshot to show, and their order.
#[derive(Debug, Args)]
pub struct Order {
    /// Sort by this figure: addresses in ascending order, all others in descending order
    #[arg(long, value_name = "WHAT", default_value = "addr", value_parser = named(SortBy::ALL))]
    pub sort: SortBy,
    /// Reverse the order
    #[arg(long)]
    pub reverse: bool,
    /// Show only regions of these sizes (1M..)
    #[arg(long, value_name = "FROM..TO", value_parser = units::sizes)]
    pub size: Option<Range<u64>>,
    /// Show only regions with these access rates, in Hz (10..)
    #[arg(long, value_name = "FROM..TO", value_parser = units::rates)]
    pub rate: Option<Range<f64>>,
    /// Show only regions that have kept their heat for this long (5s..)
    #[arg(long, value_name = "FROM..TO", value_parser = units::times)]
    pub age: Option<Range<Duration>>,
    /// Show only regions in mappings whose name contains this text; a pattern with * or ? must
    /// match the whole name
    #[arg(long, value_name = "NAME|GLOB")]
    pub mapping: Option<String>,
}

impl Access {
    /// The choice of a snapshot, its regions, and their order.
    pub fn choice(&self) -> Choice {
        let number = self.snapshot.map(Pick::Number);
        let pick = self.at.map(Pick::At).or(number).unwrap_or_default();
        Choice { pick, ..self.order.choice() }
    }
}

impl Order {
    /// The choice of regions and order, for the last snapshot.
    pub fn choice(&self) -> Choice {
        Choice {
            pick: Pick::default(),
            sort: self.sort,
            reverse: self.reverse,
            size: self.size.clone(),
            rate: self.rate.clone(),
            age: self.age.clone(),
            mapping: self.mapping.clone(),
        }
    }
}

/// Options of `report raw`.
#[derive(Debug, Args)]
pub struct Raw {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
}

/// Options of `report need`.
#[derive(Debug, Args)]
pub struct Need {
    /// which part of the record
    #[command(flatten)]
    pub part: Part,
    /// the objective, and the rows
    #[command(flatten)]
    pub asked: NeedAsked,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Picture to write, PNG or SVG by its name; - writes a PNG to standard output, unless that is
    /// a terminal [default: print text]
    #[arg(short, long, value_name = "FILE.png|FILE.svg|-")]
    pub output: Option<PathBuf>,
}

/// The objective of `report need`, and its rows.
#[derive(Debug, Clone, Args)]
pub struct NeedAsked {
    /// Memory that may return per minute, in percent of the working set
    #[arg(long, value_name = "PERCENT", default_value = "0.2", value_parser = units::percent)]
    pub objective: f64,
    /// Time for which the program waits until a page is back: about 20us from swap in compressed
    /// memory, 100us from a fast disk [default: 20us; isotherm need measures it where swap is on a disk]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub fault: Option<Duration>,
    /// Rows below the sum: processes, or control groups, each including the groups below it
    #[arg(long, value_name = "cgroup|process", default_value = "process", value_parser = named(BY))]
    pub by: By,
    /// Of files, also show the hit ratio of a page cache of this size; repeatable
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub page_cache: Vec<u64>,
}

impl NeedAsked {
    /// The objective of the report.
    pub fn objective(&self) -> Objective {
        let mut objective = Objective::default();
        objective.percent_per_minute = self.objective;
        objective.fault = self.fault.unwrap_or(objective.fault);
        objective
    }
}

/// Options of `report advice`.
#[derive(Debug, Args)]
pub struct Advice {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Maximum memory to lock in total: RLIMIT_MEMLOCK
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = units::size)]
    pub lock_limit: u64,
    /// Memory that was idle for this long at the end may be paged out
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::duration)]
    pub min_age: Duration,
    /// Memory that was touched within this time is needed; half of the record if that is shorter
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    pub window: Duration,
    /// Headroom of a limit above the needed memory, in percent of the needed memory
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = units::percent)]
    pub headroom: f64,
    /// Maximum number of ranges to name for each action
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
}

impl Advice {
    /// The thresholds of the recommendations.
    pub fn wishes(&self) -> AdviceThresholds {
        AdviceThresholds {
            lock_limit: self.lock_limit,
            min_age: self.min_age,
            window: self.window,
            headroom_percent: self.headroom,
        }
    }
}

/// Options of `report cgroups`.
#[derive(Debug, Args)]
pub struct Cgroups {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Rows are control groups, each including the groups below it, or processes
    #[arg(long, value_name = "cgroup|process", default_value = "cgroup", value_parser = named(BY))]
    pub by: By,
    /// Print one line for each part of the time of this length, instead of means and the last
    /// snapshot; JSON has both. If there were more than 1024 parts, they are 2, 4, 8, ... times as
    /// long
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = units::at_least(MILLISECOND, "parts of a record are no shorter"))]
    pub every: Option<Duration>,
    /// Maximum number of rows, by descending resident memory; JSON has all rows
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
}

/// Options of `report code`.
#[derive(Debug, Args)]
pub struct Code {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Rows of the table: the innermost function of the program itself, its line or its file, the whole call path,
    /// or the thread. data: the global variable or the mapping
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = named(CodeBy::ALL))]
    pub by: CodeBy,
    /// Show which code touched memory first, even if the record has sampled allocations (record --alloc)
    #[arg(long)]
    pub first_touch: bool,
    /// Show the call stacks that brought memory back by major faults
    #[arg(long, conflicts_with = "output")]
    pub refaults: bool,
    /// Show the changes since this earlier record (for example of an older build). The builds
    /// may differ: functions are compared by name
    #[arg(long, value_name = "FILE", conflicts_with = "refaults")]
    pub before: Option<PathBuf>,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub top: usize,
    /// Directory below which the programs and libraries of the recording lie, if they are from another
    /// machine or a container
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// File to write. Its name selects a flame graph (.svg), a web page with it and the table (.html), a profile
    /// of pprof (.pb.gz), or folded stacks of all resident memory (.folded); with --json it gets JSON
    /// [default: print a table]
    #[arg(short, long, value_name = "FILE.svg|FILE.html|FILE.pb.gz|FILE.folded")]
    pub output: Option<PathBuf>,
}

/// Options of `report accuracy`.
#[derive(Debug, Args)]
pub struct Accuracy {
    /// which record
    #[command(flatten)]
    pub input: Input,
    /// File with the real accesses, as isotherm lab workload --truth writes it
    #[arg(long, value_name = "FILE.json")]
    pub truth: PathBuf,
    /// Target that ran the workload, if the record has several: its pid, a part of its command
    /// line, or its number in the record
    #[arg(long, value_name = "PID|NAME|NUMBER")]
    pub target: Option<String>,
    /// Leave out this time at the beginning of each phase of the workload from the scores over time
    #[arg(long, value_name = "TIME", default_value = "600ms", value_parser = units::duration)]
    pub settle: Duration,
    /// Print the scores of each second
    #[arg(long, conflicts_with = "json")]
    pub over_time: bool,
    /// Print JSON, including the scores of each second
    #[arg(long)]
    pub json: bool,
}
