//! Histograms of idle ages: for how long pages have been untouched, now or before their next touch.
//!
//! They are the cold-age and the promotion histogram of far memory (Lagar-Cavilla et al., ASPLOS 2019). Together
//! they show how much memory a process needs. The process can give up the memory that is idle for T or longer.
//! Then as many pages return per second as are touched after T or longer.

use crate::page_mask::PageMask;
use crate::time::Nanos;

/// A row is due after this time in ms, then each time the time since the beginning has grown by a sixth, and at
/// least once a minute.
const FIRST_ROW_MS: u32 = 10_000;
const LAST_ROW_MS: u32 = 60_000;

/// Whether a row of a target's ages is due at `ms`, if they are counted since `begun` and the last row was `since`, in
/// ms. Rows come every 10 s in the first minute, and every minute after six.
pub(crate) fn is_row_due(begun: u32, since: u32, ms: u32) -> bool {
    let every = (ms.saturating_sub(begun) / 6).clamp(FIRST_ROW_MS, LAST_ROW_MS);
    ms.saturating_sub(since) >= every
}

/// Number of bins of an [`AgeHistogram`].
pub const AGE_BINS: usize = 69;

/// Lower ends of the bins from the second on, in ms: three per octave from 0.25 s on.
const EDGES: [u64; AGE_BINS - 1] = {
    let mut edges = [0; AGE_BINS - 1];
    let mut i = 0;
    while i < edges.len() {
        // 2^(1/3) and 2^(2/3), in millionths.
        let part = [1_000_000, 1_259_921, 1_587_401][i % 3];
        edges[i] = (250 << (i / 3)) * part / 1_000_000;
        i += 1;
    }
    edges
};

/// Numbers of pages by age. The first bin is below 0.25 s, and each octave above has three bins, up to 15 days
/// and more. The last bin is not spread, so it begins above the greatest age of a column of the lake, 14 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeHistogram(pub [u32; AGE_BINS]);

impl Default for AgeHistogram {
    fn default() -> Self {
        AgeHistogram([0; AGE_BINS])
    }
}

impl AgeHistogram {
    /// The lowest age of bin `i`, in ms; `None` if there is no such bin.
    #[must_use]
    pub fn lowest_ms(i: usize) -> Option<u64> {
        if i == 0 { Some(0) } else { EDGES.get(i - 1).copied() }
    }

    /// The bin of an age in ms.
    #[must_use]
    pub fn bin(ms: u64) -> usize {
        let Some(octave) = (ms / EDGES[0]).checked_ilog2() else { return 0 };
        let first = octave as usize * 3;
        let above = |i: usize| usize::from(EDGES.get(i).is_some_and(|edge| *edge <= ms));
        (1 + first + above(first + 1) + above(first + 2)).min(AGE_BINS - 1)
    }

    /// The lower end of the bin of an age; both in s. The histogram does not distinguish ages within a bin.
    #[must_use]
    pub fn bin_start(age: f64) -> f64 {
        AgeHistogram::lowest_ms(AgeHistogram::bin((age * 1e3) as u64)).unwrap_or(0) as f64 / 1e3
    }

    /// Counts `pages` pages of this age.
    pub fn add(&mut self, ms: u64, pages: u32) {
        let bin = &mut self.0[AgeHistogram::bin(ms)];
        *bin = bin.saturating_add(pages);
    }

    /// Number of pages of all ages.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|n| u64::from(*n)).sum()
    }

    /// Number of pages of this age in s, or older. Within a bin, pages are spread evenly over the logarithm of
    /// the age.
    #[must_use]
    pub fn at_least(&self, age: f64) -> f64 {
        let lowest = |i: usize| AgeHistogram::lowest_ms(i).map(|ms| (ms as f64 / 1e3).max(0.01));
        let part = |i: usize| match (lowest(i), lowest(i + 1)) {
            (Some(from), _) if from >= age => 1.0,
            (Some(from), Some(to)) if to > age => (to / age).ln() / (to / from).ln(),
            _ => 0.0,
        };
        self.0.iter().enumerate().map(|(i, n)| f64::from(*n) * part(i)).sum()
    }

    /// The pages of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(n, more)| *n = n.saturating_add(*more));
        self
    }

    /// All counts times `factor`, rounded.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        AgeHistogram(self.0.map(|n| (f64::from(n) * factor).round() as u32))
    }
}

/// Idle ages of the pages of one target. Numbers are pages of 4 KiB, estimated from a sample of the target's
/// windows: one in `sampling`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageAges {
    /// begin of the time in which `returned` was counted; it ends with the snapshot
    pub since: Nanos,
    /// begin of the counting: no older age is known
    pub begun: Nanos,
    /// One in this many windows was counted.
    pub sampling: u32,
    /// resident pages, by the time since their last touch
    pub idle: AgeHistogram,
    /// those of `idle` that were never touched since the counting began: their real ages are greater
    pub untouched: u32,
    /// resident pages of unknown age, because their accesses cannot be observed
    pub unknown: u32,
    /// pages in swap, and evicted pages of mapped files and shared memory, by the time since their last touch
    pub swapped: AgeHistogram,
    /// touches of idle pages between `since` and the snapshot, by the age before the touch
    pub returned: AgeHistogram,
    /// Mean error of the ages in `returned`, in ms: half of the range in which an age lies for sure.
    pub error_ms: u32,
    /// those of the pages that lie in huge pages, which have one accessed bit for 512 pages
    pub huge: Option<Box<HugeAges>>,
}

impl PageAges {
    /// One row for the time of this one and of `earlier`, the row before it: these idle ages, with all pages that
    /// returned. Their error is the mean over all of them.
    #[must_use]
    pub fn joined_to(&self, earlier: &PageAges) -> PageAges {
        let huge = [earlier, self].map(|a| a.huge.as_deref().copied().unwrap_or_default());
        let [(n, error), (more, later)] =
            [earlier, self].map(|a| (a.returned.total(), u64::from(a.error_ms)));
        let errors = u128::from(n) * u128::from(error) + u128::from(more) * u128::from(later);
        let mean = errors / u128::from(n + more).max(1);
        let huge = HugeAges { returned: huge[0].returned.plus(&huge[1].returned), ..huge[1] };
        PageAges {
            since: earlier.since,
            returned: earlier.returned.plus(&self.returned),
            error_ms: u32::try_from(mean).unwrap_or(u32::MAX),
            huge: (huge != HugeAges::default()).then(|| Box::new(huge)),
            ..self.clone()
        }
    }
}

/// Idle ages of pages in huge pages: see [`PageAges`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HugeAges {
    /// see [`PageAges::idle`]
    pub idle: AgeHistogram,
    /// see [`PageAges::returned`]
    pub returned: AgeHistogram,
}

/// The known ages of one target's pages, for the monitor that follows this one.
///
/// A page's accessed bit stays in its page table between two monitors. So the next one can observe whether the
/// page was touched between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAges {
    /// when this was known
    pub at: Nanos,
    /// begin of the counting
    pub begun: Nanos,
    /// One in 2^shift windows was counted ...
    pub shift: u32,
    /// ... all of them in one of 2^whole blocks.
    pub whole: u32,
    /// the blocks with counted pages, in ascending order
    pub blocks: Vec<KeptBlock>,
}

/// The counted pages of one block, for [`KeptAges`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBlock {
    /// address of the block
    pub start: u64,
    /// the counted pages, in the order of `stamps`
    pub pages: PageMask,
    /// pages that were touched since they were first cleared
    pub returned: PageMask,
    /// For each page, in ms: the time since its touch was found, the time since its clear after that, and the mean
    /// time between two touches. 0: there was none.
    pub stamps: Vec<[u32; 3]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_is_spread_over_its_logarithm() {
        let mut h = AgeHistogram::default();
        h.add(16_000, 300);
        assert_eq!((h.at_least(16.0), h.at_least(21.0)), (300.0, 0.0));
        assert_eq!([0.1, 16.0, 20.0, 20.2].map(AgeHistogram::bin_start), [0.0, 16.0, 16.0, 20.158]);
        let middle = 16.0 * 2f64.powf(1.0 / 6.0);
        assert!((h.at_least(middle) - 150.0).abs() < 1.0);
    }

    /// Found by an audit: no page was idle for 14 days, because the last bin began below that age.
    #[test]
    fn pages_are_idle_for_14_days() {
        let days = |days: f64| days * 86_400.0;
        let mut h = AgeHistogram::default();
        h.add((days(20.0) * 1e3) as u64, 300);
        assert_eq!([1.0, 7.0, 14.0].map(|age| h.at_least(days(age))), [300.0; 3]);
        h.add((days(13.0) * 1e3) as u64, 300);
        assert!((300.0..450.0).contains(&h.at_least(days(14.0))), "{}", h.at_least(days(14.0)));
    }

    #[test]
    fn bins_are_thirds_of_octaves_from_a_quarter_of_a_second_to_fifteen_days() {
        let bin = |ms| {
            let mut h = AgeHistogram::default();
            h.add(ms, 3);
            assert_eq!(h.total(), 3);
            h.0.iter().position(|n| *n == 3).unwrap()
        };
        assert_eq!([0, 249, 250, 313, 314, 499, 500, 1000].map(bin), [0, 0, 1, 1, 2, 3, 4, 7]);
        assert_eq!([14, 16].map(|days| bin(days * 86_400_000)), [AGE_BINS - 2, AGE_BINS - 1]);
        assert!((15.0..16.0).contains(&(EDGES[AGE_BINS - 2] as f64 / 86_400e3)));
        for i in 0..AGE_BINS {
            let lowest = AgeHistogram::lowest_ms(i).unwrap();
            assert_eq!((bin(lowest), bin(lowest.saturating_sub(1))), (i, i.saturating_sub(1)));
        }
        assert_eq!(AgeHistogram::lowest_ms(AGE_BINS), None);
    }
}
