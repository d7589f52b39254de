//! Options of `report`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use isotherm::units;
use isotherm_core::{AddrRange, Thresholds};
use isotherm_report::{By, Choice, Pick, SortBy, Wishes};

use super::DEFAULT_RECORD;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Which record.
#[derive(Debug, Clone, Args)]
pub struct Input {
    /// Record to read; - is standard input
    #[arg(short = 'i', long = "input", value_name = "FILE", default_value = DEFAULT_RECORD)]
    pub path: PathBuf,
    /// Leave out what is damaged, instead of ending there; every report says what is missing
    #[arg(long)]
    pub skip_damaged: bool,
}

/// Which part of which record, and what is called hot and cold.
#[derive(Debug, Args)]
pub struct Selection {
    /// which record
    #[command(flatten)]
    pub input: Input,
    /// Only this part of the recording, counted from its begin (10s..20s)
    #[arg(long, value_name = "FROM..TO", value_parser = units::times)]
    pub time: Option<Range<Duration>>,
    /// Only this target: its pid, a part of its command line, or its number in the record; may be
    /// given several times
    #[arg(long, value_name = "PID|NAME|NUMBER")]
    pub target: Vec<String>,
    /// how it is shown
    #[command(flatten)]
    pub shown: Shown,
}

/// What every report of memory is shown by.
#[derive(Debug, Clone, Args)]
pub struct Shown {
    /// Only these addresses (0x7f0000000000..0x7f0010000000)
    #[arg(long, value_name = "FROM..TO", value_parser = units::addresses)]
    pub addr: Option<AddrRange>,
    /// Hot: touched this often a second, or more
    #[arg(long, value_name = "HZ", default_value = "10", value_parser = units::rate)]
    pub hot: f64,
    /// Cold: untouched for this long, or longer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration)]
    pub cold: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Shown {
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
    /// How much is hot, warm and cold, the working set, and where the heat is
    Summary(Summary),
    /// Time across, addresses up, colour for heat: a PNG, an SVG, or in the terminal
    Heatmap(Heatmap),
    /// How much memory is in use: as a distribution and over time
    Wss(Over),
    /// How many regions there were, against the bounds, and how big: what accuracy and cost hang on
    Regions(Over),
    /// The regions of one snapshot
    Access(Access),
    /// Every region of every snapshot, a line each; as JSON, a line a snapshot
    Raw(Raw),
    /// What to tell the kernel: which ranges to lock, make huge or page out, and how big a limit
    Advice(Advice),
    /// Whose memory is hot, warm, cold, unknown or saved: by control group or process, over time
    Cgroups(Cgroups),
    /// How right a recording of `isotherm lab workload` is, against the truth that it wrote
    Accuracy(Accuracy),
}

/// Options of `report summary`.
#[derive(Debug, Args)]
pub struct Summary {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Mappings named at most
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub top: usize,
}

/// Options of `report heatmap`.
#[derive(Debug, Args)]
pub struct Heatmap {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Picture to write, PNG or SVG by its name; - is standard output: a PNG, unless that is a
    /// terminal [default: draw in the terminal]
    #[arg(short, long, value_name = "FILE.png|FILE.svg|-")]
    pub output: Option<PathBuf>,
}

/// Options of `report wss` and `report regions`.
#[derive(Debug, Args)]
pub struct Over {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// Parts of the time, in percent, in which the values told were not exceeded
    #[arg(
        long, value_name = "P,P,...", default_value = "0,25,50,75,100", value_delimiter = ',',
        value_parser = units::percent
    )]
    pub percentiles: Vec<f64>,
    /// Print how it went over time, instead of percentiles; pictures and JSON have both
    #[arg(long)]
    pub over_time: bool,
    /// Picture to write, PNG or SVG by its name; - is standard output: a PNG, unless that is a
    /// terminal [default: print text]
    #[arg(short, long, value_name = "FILE.png|FILE.svg|-")]
    pub output: Option<PathBuf>,
}

/// Options of `report access`.
#[derive(Debug, Args)]
pub struct Access {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// The snapshot that was going on at this time, counted from the begin of the recording
    /// [default: the last one]
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "snapshot")]
    pub at: Option<Duration>,
    /// The snapshot of this number
    #[arg(long, value_name = "N")]
    pub snapshot: Option<u64>,
    /// which regions
    #[command(flatten)]
    pub order: Order,
}

/// Which regions of a snapshot are shown, and in which order.
#[derive(Debug, Args)]
pub struct Order {
    /// What to sort by: addresses from the lowest, all else from the greatest
    #[arg(long, value_name = "WHAT", default_value = "addr", value_parser = sort())]
    pub sort: SortBy,
    /// Sort the other way round
    #[arg(long)]
    pub reverse: bool,
    /// Only regions of these sizes (1M..)
    #[arg(long, value_name = "FROM..TO", value_parser = units::sizes)]
    pub size: Option<Range<u64>>,
    /// Only regions touched this often, in Hz (10..)
    #[arg(long, value_name = "FROM..TO", value_parser = units::rates)]
    pub rate: Option<Range<f64>>,
    /// Only regions that have kept their heat for this long (5s..)
    #[arg(long, value_name = "FROM..TO", value_parser = units::times)]
    pub age: Option<Range<Duration>>,
    /// Only regions in mappings whose name holds this; with * or ? in it, the whole name must fit
    #[arg(long, value_name = "NAME|GLOB")]
    pub mapping: Option<String>,
}

impl Access {
    /// Which snapshot, which of its regions, and their order.
    pub fn choice(&self) -> Choice {
        let number = self.snapshot.map(Pick::Number);
        let pick = self.at.map(Pick::At).or(number).unwrap_or_default();
        Choice { pick, ..self.order.choice() }
    }
}

impl Order {
    /// Of the last snapshot.
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

fn sort() -> impl TypedValueParser<Value = SortBy> {
    let find = |word: String| SortBy::ALL.into_iter().find(|s| s.1 == word).map(|s| s.0);
    PossibleValuesParser::new(SortBy::ALL.map(|s| s.1)).map(move |w| find(w).unwrap_or_default())
}

/// Options of `report raw`.
#[derive(Debug, Args)]
pub struct Raw {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
}

/// Options of `report advice`.
#[derive(Debug, Args)]
pub struct Advice {
    /// what to show
    #[command(flatten)]
    pub selection: Selection,
    /// What may be locked in all: RLIMIT_MEMLOCK
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = units::size)]
    pub lock_limit: u64,
    /// What was idle for this long in the end may go
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::duration)]
    pub min_age: Duration,
    /// What was touched within this time is needed; half of the record if that is shorter
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    pub window: Duration,
    /// What a limit leaves free beyond what was needed, in percent of it
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = units::percent)]
    pub headroom: f64,
    /// Ranges named at most, of each action
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
}

impl Advice {
    /// What is worth something.
    pub fn wishes(&self) -> Wishes {
        Wishes {
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
    /// What a row is: a control group with all in those below it, or a process
    #[arg(
        long, value_name = "cgroup|process", default_value = "cgroup",
        value_parser = PossibleValuesParser::new(["cgroup", "process"])
            .map(|name| if name == "process" { By::Process } else { By::Cgroup })
    )]
    pub by: By,
    /// Print a line for each part of the time of this length, instead of means and the last snapshot; JSON
    /// has both. Parts of a record that would have more than 1024 are twice, 4, 8, ... times as long
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = units::at_least(MILLISECOND, "parts of a record are no shorter"))]
    pub every: Option<Duration>,
    /// Rows at most, those with most resident memory first; JSON has all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
}

/// Options of `report accuracy`.
#[derive(Debug, Args)]
pub struct Accuracy {
    /// which record
    #[command(flatten)]
    pub input: Input,
    /// What was really touched: written by isotherm lab workload --truth
    #[arg(long, value_name = "FILE.json")]
    pub truth: PathBuf,
    /// The target that was the workload, if there are several: its pid, a part of its command line,
    /// or its number in the record
    #[arg(long, value_name = "PID|NAME|NUMBER")]
    pub target: Option<String>,
    /// Leave out this much at the begin of each phase of the workload where each moment is scored
    #[arg(long, value_name = "TIME", default_value = "600ms", value_parser = units::duration)]
    pub settle: Duration,
    /// Print how right each second is
    #[arg(long, conflicts_with = "json")]
    pub over_time: bool,
    /// Print JSON, each second included
    #[arg(long)]
    pub json: bool,
}
