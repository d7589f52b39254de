//! Sampled page faults: which code touched a page first, and which code brought it back.

use std::sync::Arc;

use crate::call::TargetId;
use crate::range::AddrRange;
use crate::time::Nanos;

/// What happened to a sampled page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A thread touched the page, and the kernel did not have to read it from a disk or from swap.
    Minor,
    /// A thread touched the page, and waited until the kernel had read it.
    Major,
    /// The memory was unmapped or freed.
    Freed,
    /// The page was moved to swap.
    Swapped,
    /// The page is resident again.
    Returned,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 5] = [
        FaultKind::Minor,
        FaultKind::Major,
        FaultKind::Freed,
        FaultKind::Swapped,
        FaultKind::Returned,
    ];

    /// The word in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Minor => "minor",
            FaultKind::Major => "major",
            FaultKind::Freed => "freed",
            FaultKind::Swapped => "swapped",
            FaultKind::Returned => "returned",
        }
    }

    /// Whether a thread touched the page.
    #[must_use]
    pub fn is_touch(self) -> bool {
        matches!(self, FaultKind::Minor | FaultKind::Major)
    }
}

/// A sampled page fault, or a later change of the sampled page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// the target
    pub target: TargetId,
    /// its time, on the clock of the snapshots
    pub at: Nanos,
    /// what happened
    pub kind: FaultKind,
    /// the thread that touched the page; 0 if none did
    pub tid: u32,
    /// name of that thread, at most 15 bytes; empty if no thread touched the page
    pub thread: Arc<str>,
    /// The touched memory: one page, or one huge page. Freed memory may be longer.
    pub range: AddrRange,
    /// number of faults that this sample represents: the sampling period; 0 if no thread touched the page
    pub weight: u64,
    /// Call stack in user space, the innermost frame first: the address of an instruction, then return
    /// addresses. Empty if no thread touched the page.
    pub frames: Arc<[u64]>,
}

/// A part of a file that a target may execute, and the identity of that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMapping {
    /// addresses in the target
    pub range: AddrRange,
    /// offset of the range in the file
    pub offset: u64,
    /// path of the file, as the target sees it
    pub path: Arc<str>,
    /// GNU build id of the file, in hexadecimal digits; empty if it has none or cannot be read
    pub build_id: Arc<str>,
}

/// Bounds the number of samples that are kept: a burst, and then a rate. A program fills its memory in bursts, so
/// its memory is described well, and a program that allocates and frees all the time costs little.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleBudget {
    /// samples that may still be kept
    tokens: f64,
    /// time of the last refill
    at: Nanos,
}

impl SampleBudget {
    /// Samples of a burst.
    const BURST: f64 = 16_384.0;
    /// Samples per second in the long run. A sample costs about 4 us, so that this is 0.1 % of a CPU.
    const RATE: f64 = 250.0;
    /// Samples that are always kept at once.
    const LEAST: f64 = 32.0;

    /// A budget that permits a burst now.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        SampleBudget { tokens: Self::BURST, at: now }
    }

    /// Of `n` samples that arrive at once, one in this many is to be kept, with this many times its weight.
    /// Example: with 1000 tokens left, 2000 samples use at most half of them, so one in 4 is kept.
    pub fn stride(&mut self, now: Nanos, n: usize) -> u64 {
        let refill = now.since(self.at).as_secs_f64() * Self::RATE;
        self.tokens = (self.tokens + refill).min(Self::BURST);
        self.at = now;
        let most = (self.tokens / 2.0).max(Self::LEAST);
        let stride = (n as f64 / most).ceil().max(1.0);
        self.tokens = (self.tokens - n as f64 / stride).max(0.0);
        stride as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_is_kept_and_a_steady_stream_is_thinned() {
        let mut budget = SampleBudget::new(Nanos(0));
        assert_eq!(budget.stride(Nanos(0), 8000), 1);
        let mut now = Nanos(0);
        let mut kept = 0;
        for _ in 0..4000 {
            now = now + Duration::from_millis(250);
            kept += 2500 / budget.stride(now, 2500);
        }
        let steady = kept as f64 / 1000.0;
        assert!((150.0..=300.0).contains(&steady), "{steady} a second");
        assert_eq!(budget.stride(now + Duration::from_secs(80), 8000), 1);
    }

    proptest! {
        /// In any time, no more are kept than a burst, the rate, and the few that are always kept.
        #[test]
        fn what_is_kept_is_bounded(
            batches in prop::collection::vec((1u64..2_000, 0usize..50_000), 1..100),
        ) {
            let mut budget = SampleBudget::new(Nanos(0));
            let (mut now, mut kept) = (Nanos(0), 0.0);
            for &(ms, n) in &batches {
                now = now + Duration::from_millis(ms);
                let stride = budget.stride(now, n);
                prop_assert!(stride >= 1);
                kept += n as f64 / stride as f64;
            }
            let seconds = now.0 as f64 / 1e9;
            let most = SampleBudget::BURST + SampleBudget::RATE * seconds;
            prop_assert!(kept <= most + SampleBudget::LEAST * batches.len() as f64);
        }
    }
}
