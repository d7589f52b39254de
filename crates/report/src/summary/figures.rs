//! The figures themselves.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::basis::GapFigures;

/// The figures. Means are over time: a snapshot counts as long as its interval lasted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// of these keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// since the recording began
    pub from_ms: f64,
    /// since the recording began
    pub to_ms: f64,
    /// within that time
    pub snapshots: u64,
    /// interval of sampling, as last set
    pub sample_ms: f64,
    /// interval of aggregation, as last set
    pub aggr_ms: f64,
    /// hot from this rate on
    pub hot_hz: f64,
    /// cold from this long untouched on
    pub cold_ms: f64,
    /// how accesses were looked at; empty if the record does not say
    pub look: String,
    /// where a damaged record has nothing to show
    pub gaps: Vec<GapFigures>,
    /// over the time
    pub mean: Bytes,
    /// in the last snapshot
    pub last: Bytes,
    /// hot and warm bytes
    pub working_set: WorkingSet,
    /// means by name, the hottest first
    pub mappings: Vec<MappingRow>,
    /// means by target
    pub targets: Vec<TargetRow>,
    /// what monitoring did and cost
    pub monitor: MonitorFigures,
    /// CPU time of all targets, of one CPU; not there if it cannot be told
    pub target_cpu_percent: Option<f64>,
}

/// Bytes by what is known of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Bytes {
    /// resident, absent and left out
    pub mapped_bytes: u64,
    /// hot, warm, cold and unknown
    pub resident_bytes: u64,
    /// touched at the hot rate or more
    pub hot_bytes: u64,
    /// neither hot nor cold
    pub warm_bytes: u64,
    /// untouched for the cold age or more
    pub cold_bytes: u64,
    /// resident, but its accesses cannot be seen
    pub unknown_bytes: u64,
    /// why; reasons without bytes are not there
    pub unknown_bytes_by_reason: BTreeMap<&'static str, u64>,
    /// Resident, seen, and looked at lately enough. This and the next two are 0 where the record does not
    /// say what rates rest on; else they add up to the hot, warm and cold bytes.
    pub measured_bytes: u64,
    /// presumed to be like a sample of their stretch
    pub extended_bytes: u64,
    /// known only from a time that has passed
    pub old_bytes: u64,
    /// mapped, not resident
    pub absent_bytes: u64,
    /// mapped, but no region covered it
    pub left_out_bytes: u64,
}

/// Percentiles over time: p95 is the smallest working set that was not exceeded for 95 % of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// median
    pub p50_bytes: u64,
    /// 95th percentile
    pub p95_bytes: u64,
    /// biggest
    pub max_bytes: u64,
}

/// The mappings of one name, over all targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappingRow {
    /// a path, `[heap]`, `anonymous`, ...
    pub name: String,
    /// means
    #[serde(flatten)]
    pub bytes: Bytes,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetRow {
    /// its number
    pub target: u32,
    /// what it is called
    pub label: String,
    /// CPU time, of one CPU; not there if it cannot be told
    pub cpu_percent: Option<f64>,
    /// means
    #[serde(flatten)]
    pub bytes: Bytes,
}

/// What monitoring did and cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct MonitorFigures {
    /// exposure, regions or pages; as last set
    pub kind: &'static str,
    /// own CPU time, of one CPU
    pub cpu_percent: f64,
    /// what the targets lost by it, of one CPU
    pub lost_percent: f64,
    /// what both may be together, as last set; none if there is no bound
    pub budget_percent: Option<f64>,
    /// share of the memory that can be seen that the snapshots told of, mean over the time for which
    /// that is known
    pub coverage_percent: Option<f64>,
    /// half of the width of the rates' 95 % intervals, as a binary logarithm; likewise
    pub error_log2: Option<f64>,
    /// pages that somebody else cleared, likewise
    pub stolen_per_s: Option<f64>,
    /// share of the time in which the monitor did without clearing, for the targets' sake; likewise
    pub restrained_percent: Option<f64>,
    /// windows looked at
    pub looks_per_s: f64,
    /// ranges cleared: TLB shootdowns on each CPU that runs the target
    pub clears_per_s: f64,
    /// over the time
    pub regions_mean: f64,
    /// most in a snapshot
    pub regions_max: usize,
    /// most allowed
    pub regions_bound: u32,
}

impl Bytes {
    /// Adds those of other memory.
    pub(crate) fn add(&mut self, o: &Bytes) {
        self.mapped_bytes += o.mapped_bytes;
        self.resident_bytes += o.resident_bytes;
        self.hot_bytes += o.hot_bytes;
        self.warm_bytes += o.warm_bytes;
        self.cold_bytes += o.cold_bytes;
        self.unknown_bytes += o.unknown_bytes;
        self.measured_bytes += o.measured_bytes;
        self.extended_bytes += o.extended_bytes;
        self.old_bytes += o.old_bytes;
        self.absent_bytes += o.absent_bytes;
        self.left_out_bytes += o.left_out_bytes;
        for (why, n) in &o.unknown_bytes_by_reason {
            *self.unknown_bytes_by_reason.entry(why).or_default() += n;
        }
    }
}
