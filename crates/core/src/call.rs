//! Types that all calls of an operations set use: target, cost, error.

use std::time::Duration;

/// Identifies one target within an operations set; an id is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u32);

/// Cost of looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// CPU time of the monitor.
    pub cpu: Duration,
    /// Windows looked at.
    pub looks: u64,
    /// Page-table entries read.
    pub pages: u64,
    /// Cleared ranges that held a set bit: each causes a TLB shootdown on every CPU that runs the target.
    pub clears: u64,
    /// CPU time that the targets lose, as far as it is known: for shootdowns on each CPU that runs them, and
    /// for setting the bits again.
    pub lost: Duration,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, o: Cost) {
        // The costs of a record may be any numbers.
        self.cpu = self.cpu.saturating_add(o.cpu);
        self.looks = self.looks.saturating_add(o.looks);
        self.pages = self.pages.saturating_add(o.pages);
        self.clears = self.clears.saturating_add(o.clears);
        self.lost = self.lost.saturating_add(o.lost);
    }
}

/// An error that prevents an operations set from working at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// the target was never attached, or is detached
    #[error("target {0:?} is not attached: attach it first")]
    NoTarget(TargetId),
    /// the machine refused; the text states the failure, its reason and a remedy
    #[error("{0}")]
    Failed(String),
}
