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

/// Divides `whole` in proportion to `weights`: the cost of watching, for example, by resident memory. The parts are
/// rounded so that they add up to the whole. If all weights are 0, the first part is the whole.
///
/// Example: 10 by the weights 1, 1, 1 is 3, 3, 4.
pub fn proportional_parts(
    whole: u64,
    weights: impl Iterator<Item = u64> + Clone,
) -> impl Iterator<Item = u64> {
    let all = weights.clone().fold(0, u64::saturating_add);
    let until = move |weight: u64| match all {
        0 => whole,
        _ => {
            let part = u128::from(whole) * u128::from(weight) / u128::from(all);
            u64::try_from(part).unwrap_or(whole)
        }
    };
    let (mut before, mut given) = (0u64, 0);
    weights.map(move |weight| {
        before = before.saturating_add(weight);
        let so_far = until(before);
        so_far - std::mem::replace(&mut given, so_far)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let parts = |whole, weights: &[u64]| {
            proportional_parts(whole, weights.iter().copied()).collect::<Vec<_>>()
        };
        assert_eq!(parts(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(parts(1001, &[0, 500, 0, 500]), [0, 500, 0, 501]);
        assert_eq!(parts(7, &[0, 0]), [7, 0]);
        assert!(parts(7, &[]).is_empty());
        // The sizes of a record may be any numbers.
        assert_eq!(parts(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX, 0]);
    }
}
