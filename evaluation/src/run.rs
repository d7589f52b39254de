//! The results of a run.

use serde::{Deserialize, Serialize};

use super::config::Config;
use super::folder::RunOutcome;
use super::latency::Latency;
use super::plan::PlannedRun;
use super::sampler::MemoryFigures;
use super::slices::Sliced;

/// The work that was done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum WorkDone {
    /// a fixed amount of work, in this many seconds
    Seconds(f64),
    /// amount of work per second
    PerSecond(f64),
}

impl WorkDone {
    /// The number, in either unit.
    pub fn number(self) -> f64 {
        match self {
            WorkDone::Seconds(n) | WorkDone::PerSecond(n) => n,
        }
    }
}

/// Use of a time quota by its windows, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// number of windows with an action
    pub count: usize,
    /// the maximum of any window
    pub worst: f64,
    /// median over windows that are directly followed by another window with an action, so that there was
    /// enough memory to act on
    pub median: Option<f64>,
}

/// The results of one run, during the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// work, as the workload counts it
    pub work: WorkDone,
    /// results if isotherm alternated between work and rest; `work` is then that with isotherm at work
    #[serde(default)]
    pub sliced: Option<Sliced>,
    /// duration of the measurement
    pub seconds: f64,
    /// mean of the samples
    pub memory: MemoryFigures,
    /// major faults (they wait for swap or a disk), of the whole machine
    pub major_faults: u64,
    /// allocations with direct reclaim, of the whole machine
    pub stalls: u64,
    /// share of the time in which at least one task waited for memory, in percent
    pub pressure: f64,
    /// CPU time of isotherm while it was at work, in percent of one CPU; `None` if it did not run
    pub own_cpu: Option<f64>,
    /// time for actions according to its log, in percent of the time
    pub acting: Option<f64>,
    /// latency, if the workload serves requests
    pub latency: Option<Latency>,
    /// windows, if there is a quota
    pub windows: Option<Windows>,
}

/// One line of the results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// name of the workload
    pub workload: String,
    /// configuration
    pub config: Config,
    /// number of the repetition, from 0
    pub repetition: u32,
    /// the results, or the reason for the failure
    pub outcome: Result<RunResult, String>,
}

impl RunOutcome for Run {
    type Turn<'a> = PlannedRun<'a>;
    const FILE: &'static str = "runs.jsonl";

    fn turn(&self) -> PlannedRun<'_> {
        let Run { workload, config, repetition, .. } = self;
        PlannedRun { workload, config: *config, repetition: *repetition }
    }

    fn failure(&self) -> Option<&str> {
        self.outcome.as_ref().err().map(String::as_str)
    }
}
