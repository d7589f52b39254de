//! What every call of an operations set has: a target, a cost, or an error.

use std::time::Duration;

/// Names one target within an operations set; never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u32);

/// What looking cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// CPU time of the monitor.
    pub cpu: Duration,
    /// Windows looked at.
    pub looks: u64,
    /// Page-table entries read.
    pub pages: u64,
    /// Ranges cleared that held a set bit: each is a TLB shootdown on every CPU that runs the
    /// target.
    pub clears: u64,
    /// What the targets lose by it, as far as that can be told: CPU time for shootdowns on each CPU
    /// that runs them, and for setting the bits again.
    pub lost: Duration,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, o: Cost) {
        self.cpu += o.cpu;
        self.looks += o.looks;
        self.pages += o.pages;
        self.clears += o.clears;
        self.lost += o.lost;
    }
}

/// Why an operations set could not do its work at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// the target was never attached, or has been let go
    #[error("target {0:?} is not known here: attach it first")]
    NoTarget(TargetId),
    /// the machine refused; the text says what failed, why, and what to do
    #[error("{0}")]
    Failed(String),
}
