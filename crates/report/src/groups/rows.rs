//! The figures of the report by control group or process.

use isotherm_core::{HeatBytes, Missing};
use serde::Serialize;

use crate::basis::Basis;

/// Memory by control group or process, over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Groups {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// the basis of the figures
    #[serde(flatten)]
    pub basis: Basis,
    /// the kind of rows: `cgroup` or `process`
    pub by: &'static str,
    /// length of a part of [`GroupRow::over_time`]
    pub every_ms: f64,
    /// rows in descending order of resident memory
    pub rows: Vec<GroupRow>,
    /// number of processes and groups in the row `(others)`, because there were too many rows; counted up to
    /// 16,384
    pub others: u64,
}

/// A control group, including the groups below it, or a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupRow {
    /// number of the process in the record; null for a group
    pub target: Option<u32>,
    /// label; for a group its path
    pub label: String,
    /// path of the process's group at its last attribution; null for a group
    pub cgroup: Option<String>,
    /// mean over the time
    pub mean: GroupBytes,
    /// in the last snapshot
    pub last: GroupBytes,
    /// bytes of pages that were read back, over the time
    pub refaulted_bytes: Option<u64>,
    /// parts of the time that are not empty
    pub over_time: Vec<TimeBucket>,
}

/// Bytes by heat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct GroupBytes {
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
    /// in swap; null if the record does not contain it
    pub saved_bytes: Option<u64>,
}

/// A part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TimeBucket {
    /// start, since the start of the recording
    pub from_ms: f64,
    /// end, since the start of the recording
    pub to_ms: f64,
    /// mean over that time
    #[serde(flatten)]
    pub mean: GroupBytes,
    /// bytes of pages that were read back in it
    pub refaulted_bytes: Option<u64>,
}

impl GroupBytes {
    pub(super) fn of(b: &HeatBytes, saved: Option<u64>) -> Self {
        GroupBytes {
            resident_bytes: Some(b.resident()),
            hot_bytes: b.hot,
            warm_bytes: b.warm,
            cold_bytes: b.cold,
            unknown_bytes: b.unknown,
            saved_bytes: saved,
        }
    }

    pub(super) fn add(&mut self, o: &GroupBytes) {
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        add(&mut self.hot_bytes, o.hot_bytes);
        add(&mut self.warm_bytes, o.warm_bytes);
        add(&mut self.cold_bytes, o.cold_bytes);
        add(&mut self.unknown_bytes, o.unknown_bytes);
        for (sum, bytes) in
            [(&mut self.resident_bytes, o.resident_bytes), (&mut self.saved_bytes, o.saved_bytes)]
        {
            if let Some(bytes) = bytes {
                add(sum.get_or_insert(0), bytes);
            }
        }
    }

    /// Without resident memory if the record does not contain it.
    pub(super) fn known(self, missing: Missing) -> Self {
        let resident_bytes = missing.resident(self.resident_bytes.unwrap_or_default());
        GroupBytes { resident_bytes, ..self }
    }

    /// The bytes of all states of heat.
    pub(super) fn of_any_heat(&self) -> u64 {
        let states = [self.hot_bytes, self.warm_bytes, self.cold_bytes, self.unknown_bytes];
        states.into_iter().fold(0, u64::saturating_add)
    }
}
