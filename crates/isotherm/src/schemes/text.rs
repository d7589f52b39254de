//! The TOML form of schemes. `docs/abi/testing/scheme.md` describes it. `scheme.schema.json` next to that page is
//! generated from these types and their comments.

use isotherm_core::MappingKind;
use serde::Deserialize;

use super::values::{ActionText, Age, Rate, Share, Size, Time};

/// A file of schemes, in their order of execution.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct File {
    pub scheme: Vec<SchemeText>,
}

/// The schemes of a file that also contains other tables.
#[derive(Debug, Deserialize)]
pub struct Among {
    #[serde(default)]
    pub scheme: Vec<SchemeText>,
}

/// An action on matching regions, within a quota, while the watermarks permit it.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SchemeText {
    /// name of the scheme; the default is its action
    pub name: Option<String>,
    /// the action
    pub action: ActionText,
    /// size of a region in bytes
    #[serde(default)]
    pub size: Bounds<Size>,
    /// touches of a page a second
    #[serde(default)]
    pub rate: Bounds<Rate>,
    /// time for which the region has kept its heat
    #[serde(default)]
    pub age: Bounds<Age>,
    /// interval between two turns; the default is each snapshot
    pub apply_interval: Option<Time>,
    /// before an action for cold memory, pages touched within this time are skipped; the default is the
    /// sampling interval
    pub recheck: Option<Time>,
    /// limits in a window of time
    #[serde(default)]
    pub quota: QuotaText,
    /// conditions of the machine
    pub watermarks: Option<WatermarksText>,
    /// the parts of regions to act on; the first filter that matches a part decides
    #[serde(default)]
    pub filters: Vec<FilterText>,
}

/// Minimum and maximum, both inclusive.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bounds<T> {
    /// minimum; by default none
    pub min: Option<T>,
    /// maximum; by default none
    pub max: Option<T>,
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Bounds { min: None, max: None }
    }
}

/// Limits in a window of time. A missing limit is no limit.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QuotaText {
    /// time for acting
    pub time: Option<Time>,
    /// bytes; with 0 the scheme never acts
    pub bytes: Option<Size>,
    /// length of a window; the default is 1s
    pub reset: Option<Time>,
    /// priority of regions; all zero: no priority
    #[serde(default)]
    pub weights: WeightsText,
    /// goals that adjust the quota, within the other limits
    #[serde(default)]
    pub goals: Vec<GoalText>,
}

/// The weight of each property in the priority.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WeightsText {
    /// weight of the size: bigger regions first
    pub size: u32,
    /// weight of the share of accessed pages
    pub rate: u32,
    /// weight of the age
    pub age: u32,
    /// weight of the expected cost of paging out, now and if the memory returns: the cheapest first
    pub cost: u32,
}

/// A goal.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GoalText {
    /// some tasks wait for memory for this time in each second
    Stalled(ScopedTarget<Time>),
    /// this share of the working set is read back within a minute
    Refaults(ScopedTarget<Share>),
    /// this share of the machine's memory is free
    Free(Share),
    /// this many bytes are resident
    Resident(ScopedTarget<Size>),
    /// the number in a file has this value
    File(FileGoal),
}

/// A target value, and where it is measured.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScopedTarget<T> {
    /// the target value
    pub target: T,
    /// `targets` (the watched processes and their control group), `machine`, or the path of a control group
    #[serde(default = "of_targets")]
    pub of: String,
}

/// A number in a file.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FileGoal {
    /// path of the file, which is read in each window
    pub path: String,
    /// target value of the number, above 0
    pub target: f64,
}

/// The scheme acts only while a metric lies between `low` and `high`. It turns on below `mid`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WatermarksText {
    /// the metric
    pub metric: MetricText,
    /// where it is measured, only for `stalled`: as in goals
    pub of: Option<String>,
    /// interval between two checks; the default is 5s
    pub interval: Option<Time>,
    /// the scheme is off above this
    pub high: Share,
    /// the scheme turns on below this
    pub mid: Share,
    /// the scheme is off below this
    pub low: Share,
}

/// A metric for watermarks.
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

/// Allows or rejects parts or pages of a kind.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterText {
    /// the kind
    pub kind: KindText,
    /// inverts the filter
    #[serde(default)]
    pub not: bool,
    /// whether matching memory passes; by default it is rejected
    #[serde(default)]
    pub allow: bool,
}

/// A kind of memory.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KindText {
    /// addresses, such as `0x7f0000000000..0x7f0010000000`
    Addresses(String),
    /// memory of the process with this pid
    Pid(i32),
    /// memory of processes with this name, as `ps -eo comm` shows it
    Comm(String),
    /// memory of the processes of this control group, and of the groups below it
    Cgroup(String),
    /// kind of the mapping
    Mapping(MappingText),
    /// the name of the mapping, as in /proc/PID/maps
    Name(String),
    /// prefix of the name of the mapping
    NamePrefix(String),
    /// pages of folios of this size
    HugePage(Bounds<Size>),
    /// pages on this node
    Node(u32),
    /// pages whose accessed bit is set (true) or clear (false)
    Young(bool),
    /// pages that were touched within this time
    TouchedWithin(Time),
}

/// The kind of a mapping.
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

/// The watched processes.
pub const TARGETS: &str = "targets";

fn of_targets() -> String {
    TARGETS.to_owned()
}
