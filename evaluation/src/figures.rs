//! What a run has shown.

use serde::{Deserialize, Serialize};

use super::config::Config;
use super::latency::Latency;
use super::sampler::Memory;
use super::slices::Sliced;

/// Work that was done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// the same work, in so many seconds
    Seconds(f64),
    /// so much each second
    PerSecond(f64),
}

impl Work {
    /// The number, whatever it counts.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Work::Seconds(n) | Work::PerSecond(n) => n,
        }
    }
}

/// How much of a quota of time its windows took, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// those in which something was done
    pub count: usize,
    /// the most that one took
    pub worst: f64,
    /// of those that had one right behind them in which something was done, too, so that there was
    /// enough to do
    pub median: Option<f64>,
}

/// Of one run, while it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// by the workload's own count
    pub work: Work,
    /// where isotherm took turns at work and at rest; the work is that beside it then
    #[serde(default)]
    pub sliced: Option<Sliced>,
    /// how long it was measured
    pub seconds: f64,
    /// mean of the samples
    pub memory: Memory,
    /// faults that had to wait for swap or a disk, of the whole machine
    pub major_faults: u64,
    /// allocations that had to reclaim memory themselves, of the whole machine
    pub stalls: u64,
    /// of the time in which some task waited for memory, in percent
    pub pressure: f64,
    /// CPU time of isotherm while it was at work, in percent of one CPU; none where it did not run
    pub own_cpu: Option<f64>,
    /// time that acting took by its log, in percent of the time
    pub acting: Option<f64>,
    /// where the workload has requests
    pub latency: Option<Latency>,
    /// where there is a quota
    pub windows: Option<Windows>,
}

/// A line of the results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// by name
    pub workload: String,
    /// under which
    pub config: Config,
    /// from 0
    pub repetition: u32,
    /// what came of it, or why nothing did
    pub outcome: Result<Figures, String>,
}
