//! The figures of the summary.

use std::collections::BTreeMap;

use isotherm_core::Missing;
use serde::Serialize;

use crate::basis::{GapFigures, names};

/// The figures. Means are over time: a snapshot counts as long as its interval lasted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// start, since the start of the recording
    pub from_ms: f64,
    /// end, since the start of the recording
    pub to_ms: f64,
    /// number of snapshots in that time
    pub snapshots: u64,
    /// sampling interval; the last value in the record
    pub sample_ms: f64,
    /// aggregation interval; the last value in the record
    pub aggr_ms: f64,
    /// memory is hot at or above this rate
    pub hot_hz: f64,
    /// memory is cold if untouched for at least this long
    pub cold_ms: f64,
    /// the way to look; empty if the record does not contain it
    pub look: String,
    /// figures that the record does not have
    #[serde(serialize_with = "names")]
    pub missing: Missing,
    /// times for which a damaged record has no data
    pub gaps: Vec<GapFigures>,
    /// mean over the time
    pub mean: Bytes,
    /// in the last snapshot
    pub last: Bytes,
    /// hot and warm bytes
    pub working_set: WorkingSet,
    /// means by name of the mapping, the hottest first
    pub mappings: Vec<MappingRow>,
    /// means by target
    pub targets: Vec<TargetRow>,
    /// activity and cost of the monitor
    pub monitor: MonitorFigures,
    /// CPU time of all targets, in percent of one CPU; absent if unknown
    pub target_cpu_percent: Option<f64>,
}

/// Bytes by heat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Bytes {
    /// mapped: resident, absent and left out
    pub mapped_bytes: u64,
    /// resident: hot, warm, cold and unknown; `None` if the record does not contain which memory is resident
    pub resident_bytes: Option<u64>,
    /// touched at the hot rate or more
    pub hot_bytes: u64,
    /// neither hot nor cold
    pub warm_bytes: u64,
    /// untouched for the cold age or more
    pub cold_bytes: u64,
    /// resident, but accesses cannot be observed
    pub unknown_bytes: u64,
    /// unknown bytes by reason; only reasons that occur
    pub unknown_bytes_by_reason: BTreeMap<&'static str, u64>,
    /// Observable resident memory that was looked at recently enough. This field and the next two are 0 if the
    /// record does not contain the bases of rates; otherwise their sum is that of the hot, warm and cold bytes.
    pub measured_bytes: u64,
    /// presumed from a sample of the same stretch
    pub extended_bytes: u64,
    /// known only from an earlier time
    pub old_bytes: u64,
    /// mapped, but not resident; `None` as above
    pub absent_bytes: Option<u64>,
    /// mapped, but no region covered it
    pub left_out_bytes: u64,
    /// of files: cached, with changes that are not on the disk yet
    pub dirty_bytes: u64,
    /// of files: being written to the disk
    pub writeback_bytes: u64,
}

/// Percentiles over time. For example, p95 is the smallest working set that was not exceeded for 95 % of the
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// median
    pub p50_bytes: u64,
    /// 95th percentile
    pub p95_bytes: u64,
    /// maximum
    pub max_bytes: u64,
}

/// The mappings of one name, over all targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappingRow {
    /// a path, `[heap]`, `anonymous`, ...
    pub name: String,
    /// means over the time
    #[serde(flatten)]
    pub bytes: Bytes,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetRow {
    /// its number
    pub target: u32,
    /// label
    pub label: String,
    /// CPU time, in percent of one CPU; absent if unknown
    pub cpu_percent: Option<f64>,
    /// means over the time
    #[serde(flatten)]
    pub bytes: Bytes,
}

/// Activity and cost of the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct MonitorFigures {
    /// exposure, regions or pages; the last value in the record
    pub kind: &'static str,
    /// CPU time of the monitor, in percent of one CPU
    pub cpu_percent: f64,
    /// CPU time that the targets lost by being watched, in percent of one CPU
    pub lost_percent: f64,
    /// limit on the sum of both; the last value in the record; null if there is no limit
    pub budget_percent: Option<f64>,
    /// share of the observable memory that the snapshots described: mean over the time for which it is known
    pub coverage_percent: Option<f64>,
    /// half of the width of the rates' 95 % intervals, as a binary logarithm: mean over the time for which it
    /// is known
    pub error_log2: Option<f64>,
    /// pages per second that another party cleared: mean over the time for which it is known
    pub stolen_per_s: Option<f64>,
    /// share of the time for which the monitor omitted clears for the sake of the targets: mean over the time
    /// for which it is known
    pub restrained_percent: Option<f64>,
    /// windows looked at per second
    pub looks_per_s: f64,
    /// ranges cleared per second; each causes a TLB shootdown on each CPU that runs the target
    pub clears_per_s: f64,
    /// mean over the time
    pub regions_mean: f64,
    /// maximum in a snapshot
    pub regions_max: usize,
    /// maximum allowed
    pub regions_bound: u32,
}

impl Bytes {
    /// The bytes of all states of heat: the resident ones, as far as the record contains which memory is resident.
    pub(crate) fn of_any_heat(&self) -> u64 {
        self.hot_bytes + self.warm_bytes + self.cold_bytes + self.unknown_bytes
    }

    /// Adds the bytes of other memory.
    pub(crate) fn add(&mut self, o: &Bytes) {
        for (sum, o) in
            [(&mut self.resident_bytes, o.resident_bytes), (&mut self.absent_bytes, o.absent_bytes)]
        {
            *sum = sum.zip(o).map(|(a, b)| a + b);
        }
        self.mapped_bytes += o.mapped_bytes;
        self.hot_bytes += o.hot_bytes;
        self.warm_bytes += o.warm_bytes;
        self.cold_bytes += o.cold_bytes;
        self.unknown_bytes += o.unknown_bytes;
        self.measured_bytes += o.measured_bytes;
        self.extended_bytes += o.extended_bytes;
        self.old_bytes += o.old_bytes;
        self.left_out_bytes += o.left_out_bytes;
        self.dirty_bytes += o.dirty_bytes;
        self.writeback_bytes += o.writeback_bytes;
        for (why, n) in &o.unknown_bytes_by_reason {
            *self.unknown_bytes_by_reason.entry(why).or_default() += n;
        }
    }
}
