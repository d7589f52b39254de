//! Sampled page faults: which code touched a page first, and which code brought it back.

use std::sync::Arc;

use crate::call::TargetId;
use crate::range::AddrRange;
use crate::time::Nanos;

/// The kind of an event of a sampled page or allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A thread touched the page, or one near it so that the kernel mapped both. The page is its own from now on: the
    /// kernel did not have to read it, or no earlier owner is known.
    Minor,
    /// A thread touched the page, and waited until the kernel had read it. It does not own the page.
    Major,
    /// The memory was unmapped or freed.
    Freed,
    /// The page was moved to swap.
    Swapped,
    /// The page is resident again.
    Returned,
    /// A thread allocated memory. One allocation of many is sampled, by its size.
    Allocated,
    /// A sampled allocation ended.
    Released,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 7] = [
        FaultKind::Minor,
        FaultKind::Major,
        FaultKind::Freed,
        FaultKind::Swapped,
        FaultKind::Returned,
        FaultKind::Allocated,
        FaultKind::Released,
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
            FaultKind::Allocated => "allocated",
            FaultKind::Released => "released",
        }
    }

    /// Whether a thread touched the page.
    #[must_use]
    pub fn is_touch(self) -> bool {
        matches!(self, FaultKind::Minor | FaultKind::Major)
    }
}

/// A sampled page fault or allocation, or a later change of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// the target
    pub target: TargetId,
    /// its time, on the clock of the snapshots
    pub at: Nanos,
    /// kind of the event
    pub kind: FaultKind,
    /// the thread that touched the page; 0 if none did
    pub tid: u32,
    /// name of that thread, at most 15 bytes; empty if no thread touched the page
    pub thread: Arc<str>,
    /// The touched memory: one page, or one huge page; or the allocated bytes. Freed memory may be longer.
    pub range: AddrRange,
    /// number of faults or allocations that this sample represents; 0 if no thread touched or allocated memory
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
    /// GNU build id of the file, in hexadecimal digits. If it has none, 33 digits: its size in bytes (17), and the time
    /// of its last change in seconds since 1970 (16). Empty if it cannot be read.
    pub build_id: Arc<str>,
}

/// The greatest n for which a page or huge page with this number is in the sample of one in 2^n. So the sample of one in
/// 2^(n + 1) is a part of that of one in 2^n.
#[must_use]
pub const fn sample_level(number: u64) -> u32 {
    sample_hash(number).leading_zeros()
}

/// Multiplicative hashing, by 2^64 over the golden ratio: adjacent numbers are spread most evenly.
#[must_use]
pub const fn sample_hash(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Bounds the number of samples that are taken: a burst, and then a rate. A program fills its memory in bursts, so
/// its memory is described well, and a program that allocates and frees all the time costs little.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleBudget {
    /// samples that may still be taken; negative after too many
    tokens: f64,
    /// time of the last call
    at: Nanos,
    /// one sample in this many is taken, a power of two
    stride: u32,
    /// samples per second in the long run
    rate: f64,
}

impl SampleBudget {
    /// Samples of a burst.
    const BURST_SAMPLES: f64 = 4096.0;
    /// Maximum number of samples per second in the long run. A sample costs about 10 us, so that this is 0.25 % of a CPU.
    const MAX_RATE: f64 = 250.0;
    /// The minimum, so that any code is found.
    const MIN_RATE: f64 = 25.0;
    /// How many times a second the stride halves while no sample comes.
    const FALL_PER_S: f64 = 20.0;
    /// That number for a budget of 1 ppm of a CPU: a quarter of the budget.
    const RATE_OF_PPM: f64 = 0.025;
    /// A rate is computed over at least this time, in s: the first samples of a program come within milliseconds.
    const MIN_RATE_TIME_S: f64 = 0.1;
    /// One sample in this many at least is taken.
    const MAX_STRIDE: u32 = 1 << 16;
    /// Time in which a burst may be taken, in s.
    const SPENT_IN: f64 = 4.0;

    /// A budget that permits a burst now.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        SampleBudget { tokens: Self::BURST_SAMPLES, at: now, stride: 1, rate: Self::MAX_RATE }
    }

    /// In the long run, samples cost at most a quarter of `ppm` millionths of a CPU, and at most as much as without it.
    /// Example: 0.2 % of a CPU is 2000 ppm, which permits 50 samples a second.
    #[must_use]
    pub fn within(self, ppm: u32) -> Self {
        let rate = (f64::from(ppm) * Self::RATE_OF_PPM).clamp(Self::MIN_RATE, Self::MAX_RATE);
        SampleBudget { rate, ..self }
    }

    /// `n` samples were taken since the last call. Returns the stride of the next ones, a power of two: one in this many
    /// is to be taken. Example: 430 samples in 100 ms with a stride of 1 are 4300 a second. With 3700 tokens left, 1175
    /// a second are permitted, so one in 4 is taken.
    pub fn stride(&mut self, now: Nanos, n: usize) -> u32 {
        let seconds = now.since(self.at).as_secs_f64();
        self.at = now;
        self.add(seconds * self.rate - n as f64);
        let arriving = n as f64 * f64::from(self.stride) / seconds.max(Self::MIN_RATE_TIME_S);
        let permitted = (self.rate + self.tokens / Self::SPENT_IN).max(self.rate / 4.0);
        let stride = (arriving / permitted).ceil().clamp(1.0, f64::from(Self::MAX_STRIDE)) as u32;
        // If few samples are permitted, there is none at many readings, although as many as before arrive.
        let least = match n {
            0 => self.stride >> (seconds * Self::FALL_PER_S).ceil().min(31.0) as u32,
            _ => 1,
        };
        self.stride = stride.next_power_of_two().max(least);
        self.stride
    }

    /// How many samples may be taken at once, for a caller that chooses how many it takes.
    pub fn available(&mut self, now: Nanos) -> usize {
        self.add(now.since(self.at).as_secs_f64() * self.rate);
        self.at = self.at.max(now);
        self.tokens.max(0.0) as usize
    }

    /// Notes that so many samples were taken.
    pub fn spend(&mut self, n: usize) {
        self.add(-(n as f64));
    }

    fn add(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).clamp(-Self::BURST_SAMPLES, Self::BURST_SAMPLES);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    /// The number of samples taken of `rate` a second, by the second, in `seconds`.
    fn taken(budget: &mut SampleBudget, begin: Nanos, rate: f64, seconds: u64) -> Vec<f64> {
        let (mut now, mut stride, mut rest) = (begin, 1, 0.0);
        let mut second = || -> f64 {
            let step = || {
                now = now + Duration::from_millis(100);
                let n = rate / 10.0 / f64::from(stride) + rest;
                rest = n.fract();
                stride = budget.stride(now, n as usize);
                n.floor()
            };
            std::iter::repeat_with(step).take(10).sum()
        };
        (0..seconds).map(|_| second()).collect()
    }

    #[test]
    fn samples_are_nested_and_of_the_stated_size() {
        for level in 6..12 {
            let n = (1_000_000u64..2_000_000).filter(|&page| sample_level(page) >= level).count();
            let expected = 1e6 / f64::from(1 << level);
            assert!((n as f64 / expected - 1.0).abs() < 0.01, "{n} at {level}");
        }
    }

    #[test]
    fn available_samples_are_spent_once_and_come_back() {
        let mut budget = SampleBudget::new(Nanos(0));
        assert_eq!(budget.available(Nanos(0)), 4096);
        budget.spend(5000);
        let second = |n: u64| Nanos(n * 1_000_000_000);
        assert_eq!(budget.available(second(2)), 0, "904 too many, and 500 have come back");
        assert_eq!(budget.available(second(4)), 96);
        assert_eq!(budget.available(second(3)), 96, "an earlier time");
        assert_eq!(budget.available(second(100)), 4096);
    }

    #[test]
    fn a_burst_is_taken_and_a_steady_stream_is_thinned() {
        for rate in [4000.0, 20_000.0, 1e6] {
            let mut budget = SampleBudget::new(Nanos(0));
            let seconds = taken(&mut budget, Nanos(0), rate, 60);
            let late = seconds[30..].iter().sum::<f64>() / 30.0;
            assert!((100.0..=300.0).contains(&late), "{late} a second of {rate}");
        }
        let mut budget = SampleBudget::new(Nanos(0));
        let slow = taken(&mut budget, Nanos(0), 200.0, 60);
        assert!(slow.iter().all(|n| (n - 200.0).abs() < 1.5), "{slow:?}");
        let mut budget = SampleBudget::new(Nanos(0));
        let begin = Nanos(100_000_000_000);
        let _ = taken(&mut budget, Nanos(0), 20_000.0, 60);
        assert_eq!(budget.stride(begin, 3), 1, "after a pause");
    }

    /// Samples used 0.25 % of a CPU also within a budget of 0.1 %.
    #[test]
    fn the_rate_is_within_the_budget() {
        for (ppm, least, most) in [(1000, 15.0, 75.0), (2000, 20.0, 60.0), (100_000, 100.0, 300.0)]
        {
            let mut budget = SampleBudget::new(Nanos(0)).within(ppm);
            let seconds = taken(&mut budget, Nanos(0), 4000.0, 600);
            let late = seconds[500..].iter().sum::<f64>() / 100.0;
            assert!((least..=most).contains(&late), "{late} a second within {ppm} ppm");
        }
    }

    proptest! {
        /// The long-run rate is bounded: an overrun in one call is deducted from the next.
        #[test]
        fn the_number_of_samples_is_bounded(
            rates in prop::collection::vec(0.0..50_000.0f64, 1..20),
            ppm in 1u32..100_000,
        ) {
            let mut budget = SampleBudget::new(Nanos(0)).within(ppm);
            let permitted = budget.rate;
            let (mut now, mut all) = (Nanos(0), 0.0);
            for rate in &rates {
                all += taken(&mut budget, now, *rate, 20).iter().sum::<f64>();
                now = now + Duration::from_secs(20);
            }
            // A change of the rate is noticed with the next call, 100 ms later.
            let sudden = rates.len() as f64 * 5000.0;
            let seconds = now.0 as f64 / 1e9;
            prop_assert!(all <= SampleBudget::BURST_SAMPLES + permitted * seconds + sudden, "{all}");
        }
    }
}
