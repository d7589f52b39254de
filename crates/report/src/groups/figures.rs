//! The figures themselves.

use isotherm_core::HeatBytes;
use serde::Serialize;

use crate::basis::Basis;

/// Whose memory is what, over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Groups {
    /// of these keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// what the figures rest on
    #[serde(flatten)]
    pub basis: Basis,
    /// what a row is: `cgroup` or `process`
    pub by: &'static str,
    /// length of a part of [`GroupRow::over_time`]
    pub every_ms: f64,
    /// the greatest by resident memory first
    pub rows: Vec<GroupRow>,
    /// processes and groups that share the row `(others)`, as there were too many; counted up to 16,384
    pub others: u64,
}

/// A control group, with those below it, or a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupRow {
    /// of a process: its number in the record
    pub target: Option<u32>,
    /// what it is called: of a group its path
    pub label: String,
    /// of a process: the path of its group, as told last
    pub cgroup: Option<String>,
    /// over the time
    pub mean: Shares,
    /// in the last snapshot
    pub last: Shares,
    /// of pages that were read back, over the time
    pub refaulted_bytes: Option<u64>,
    /// parts of the time in which there was something
    pub over_time: Vec<Part>,
}

/// Bytes by what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Shares {
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
    /// in swap; none if the record does not tell
    pub saved_bytes: Option<u64>,
}

/// A part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    /// since the recording began
    pub from_ms: f64,
    /// since the recording began
    pub to_ms: f64,
    /// over that time
    #[serde(flatten)]
    pub mean: Shares,
    /// of pages that were read back in it
    pub refaulted_bytes: Option<u64>,
}

impl Shares {
    pub(super) fn of(b: &HeatBytes, saved: Option<u64>) -> Self {
        Shares {
            resident_bytes: b.resident(),
            hot_bytes: b.hot,
            warm_bytes: b.warm,
            cold_bytes: b.cold,
            unknown_bytes: b.unknown,
            saved_bytes: saved,
        }
    }

    pub(super) fn add(&mut self, o: &Shares) {
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        add(&mut self.resident_bytes, o.resident_bytes);
        add(&mut self.hot_bytes, o.hot_bytes);
        add(&mut self.warm_bytes, o.warm_bytes);
        add(&mut self.cold_bytes, o.cold_bytes);
        add(&mut self.unknown_bytes, o.unknown_bytes);
        if let Some(saved) = o.saved_bytes {
            add(self.saved_bytes.get_or_insert(0), saved);
        }
    }
}
