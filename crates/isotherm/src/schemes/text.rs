//! The TOML form of schemes. `docs/abi/testing/scheme.md` describes it; `scheme.schema.json`, beside
//! that, is made of these types.

use isotherm_core::MappingKind;
use serde::Deserialize;

use super::values::{Age, Deed, Rate, Share, Size, Time};

/// A file of schemes, in the order in which they have their turn.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct File {
    pub scheme: Vec<SchemeText>,
}

/// Those of a file that holds other things as well.
#[derive(Debug, Deserialize)]
pub struct Among {
    #[serde(default)]
    pub scheme: Vec<SchemeText>,
}

/// Regions like this: this action, so much of it, only while the machine is like this.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SchemeText {
    /// tells it from others; if there is none, its action
    pub name: Option<String>,
    /// what is done
    pub action: Deed,
    /// bytes of a region
    #[serde(default)]
    pub size: Bounds<Size>,
    /// touches of a page a second
    #[serde(default)]
    pub rate: Bounds<Rate>,
    /// how long the region has kept its heat
    #[serde(default)]
    pub age: Bounds<Age>,
    /// how often it has its turn; with each snapshot, if not given
    pub apply_interval: Option<Time>,
    /// What is touched within this time before an action for cold memory is let alone; the sampling
    /// interval, if not given
    pub recheck: Option<Time>,
    /// how much
    #[serde(default)]
    pub quota: QuotaText,
    /// when at all
    pub watermarks: Option<WatermarksText>,
    /// which parts of regions; the first that a part answers to decides
    #[serde(default)]
    pub filters: Vec<FilterText>,
}

/// Least and most, both within.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bounds<T> {
    /// no least, if not given
    pub min: Option<T>,
    /// no most, if not given
    pub max: Option<T>,
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Bounds { min: None, max: None }
    }
}

/// How much may be done in a window of time; what is not given is no bound.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QuotaText {
    /// time for acting
    pub time: Option<Time>,
    /// bytes; with 0 it never acts
    pub bytes: Option<Size>,
    /// length of a window; 1s if not given
    pub reset: Option<Time>,
    /// what comes first; all zero: nothing does
    #[serde(default)]
    pub weights: WeightsText,
    /// what the quota is moved by, within the other bounds
    #[serde(default)]
    pub goals: Vec<GoalText>,
}

/// How much each counts for what comes first.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WeightsText {
    /// bigger first
    pub size: u32,
    /// share of accessed pages
    pub rate: u32,
    /// age
    pub age: u32,
}

/// What is to be brought about.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GoalText {
    /// some tasks wait for memory for so long of each second
    Stalled(Of<Time>),
    /// at most so much of the working set is read back within a minute
    Refaults(Of<Share>),
    /// so much of the machine's memory is free
    Free(Share),
    /// so much is resident
    Resident(Of<Size>),
    /// the number that a file holds is so high
    File(FileGoal),
}

/// A figure, and whose.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Of<T> {
    /// what it is to be
    pub target: T,
    /// `targets` (those that are watched, and the control group that they are in), `machine`, or the
    /// path of a control group
    #[serde(default = "of_targets")]
    pub of: String,
}

/// A number in a file.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FileGoal {
    /// which file; it is read in each window
    pub path: String,
    /// what the number is to be: above 0
    pub target: f64,
}

/// It acts only while a figure lies between `low` and `high`; it turns on below `mid`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WatermarksText {
    /// which figure
    pub metric: MetricText,
    /// whose, for `stalled` alone: as in goals
    pub of: Option<String>,
    /// how often it is looked at; 5s if not given
    pub interval: Option<Time>,
    /// off above
    pub high: Share,
    /// on below
    pub mid: Share,
    /// off below
    pub low: Share,
}

/// A figure for watermarks.
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MetricText {
    /// free memory of the machine
    Free,
    /// unusable free space index of the machine, for huge pages
    Fragmentation,
    /// time in which some tasks waited for memory
    Stalled,
}

/// What becomes of parts, or of pages, of a kind.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterText {
    /// which
    pub kind: KindText,
    /// those that are not of the kind
    #[serde(default)]
    pub not: bool,
    /// let them through; else they are held back
    #[serde(default)]
    pub allow: bool,
}

/// A kind of memory.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KindText {
    /// addresses, as `0x7f0000000000..0x7f0010000000`
    Addresses(String),
    /// of the process with this pid
    Pid(i32),
    /// of processes of this name, as `ps -eo comm` shows it
    Comm(String),
    /// of the processes of this control group, and of those below it
    Cgroup(String),
    /// what the mapping is made of
    Mapping(MappingText),
    /// the name of the mapping, as in /proc/PID/maps
    Name(String),
    /// how that begins
    NamePrefix(String),
    /// pages of folios of this size
    HugePage(Bounds<Size>),
    /// pages on this node
    Node(u32),
    /// pages whose accessed bit is set, or is not
    Young(bool),
    /// pages that were touched within so long
    TouchedWithin(Time),
}

/// What a mapping is made of.
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MappingText {
    /// private memory without a file
    Anonymous,
    /// the brk area
    Heap,
    /// the stack of a thread
    Stack,
    /// a file, or shared memory
    File,
}

impl From<MappingText> for MappingKind {
    fn from(kind: MappingText) -> Self {
        match kind {
            MappingText::Anonymous => MappingKind::Anonymous,
            MappingText::Heap => MappingKind::Heap,
            MappingText::Stack => MappingKind::Stack,
            MappingText::File => MappingKind::File,
        }
    }
}

/// Those that are watched.
pub const TARGETS: &str = "targets";

fn of_targets() -> String {
    TARGETS.to_owned()
}
