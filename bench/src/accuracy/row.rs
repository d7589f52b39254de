//! Results of one workload.

use std::time::Duration;

use isotherm_sim::{Accuracy, AccuracyBuilder};
use serde::Serialize;

use super::Observation;

/// The results of a workload on a machine.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// the monitor
    pub monitor: String,
    /// its accuracy
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// CPU time of the monitor, in percent of one CPU
    pub own_cpu_percent: Option<f64>,
    /// size of the record on disk, per region
    pub bytes_a_region: Option<f64>,
}

/// The figures of this monitor. Scores of moments leave out the first `settle` of each phase.
pub fn row(monitor: &str, w: &Observation, settle: Duration) -> Row {
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
