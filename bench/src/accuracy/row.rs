//! What one workload has shown.

use std::time::Duration;

use isotherm_sim::{Accuracy, AccuracyBuilder};
use serde::Serialize;

use super::Watched;

/// A workload on a machine.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// what watched
    pub monitor: String,
    /// how right it was
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// of one CPU, in percent
    pub own_cpu_percent: Option<f64>,
    /// of the record on disk
    pub bytes_a_region: Option<f64>,
}

/// The figures of what was watched by this monitor, without the first `settle` of each phase where
/// each moment is scored.
#[must_use]
pub fn row(monitor: &str, w: &Watched, settle: Duration) -> Row {
    let mut builder = AccuracyBuilder::new(&w.truth, w.target).settle(settle);
    w.snapshots.iter().for_each(|s| builder.push(s));
    Row {
        monitor: monitor.to_owned(),
        accuracy: builder.finish(),
        own_cpu_percent: w.own_cpu.map(|share| share * 100.0),
        bytes_a_region: w.record_bytes.map(|bytes| {
            let regions: usize = w.snapshots.iter().map(|s| s.nr_regions()).sum();
            bytes as f64 / regions.max(1) as f64
        }),
    }
}
