//! The pattern of regions that a scheme acts on.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::SchemeError;
use crate::snapshot::RegionView;

/// Ranges of size, rate and age, with inclusive limits. A region matches if it is within all three.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    /// size of the region in bytes
    pub size: RangeInclusive<u64>,
    /// rate in Hz, as mean over the pages: see [`mean_hz`]
    pub hz: RangeInclusive<f64>,
    /// time for which the region has kept its heat
    pub age: RangeInclusive<Duration>,
}

impl Default for Pattern {
    /// Matches every region.
    fn default() -> Self {
        Pattern { size: 0..=u64::MAX, hz: 0.0..=f64::INFINITY, age: Duration::ZERO..=Duration::MAX }
    }
}

impl Pattern {
    /// Whether `view`, measured with sampling interval `sample`, matches.
    #[must_use]
    pub fn matches(&self, view: &RegionView, sample: Duration) -> bool {
        self.size.contains(&view.range.len())
            && self.hz.contains(&mean_hz(view, sample))
            && self.age.contains(&view.age)
    }

    pub(super) fn check(&self) -> Result<(), SchemeError> {
        let (low, high) = (*self.hz.start(), *self.hz.end());
        if low.is_nan() || high.is_nan() || low < 0.0 {
            return Err(SchemeError::Rate { low, high });
        }
        let what = [
            (self.size.is_empty(), "size"),
            (self.hz.is_empty(), "rate"),
            (self.age.is_empty(), "age"),
        ];
        what.into_iter()
            .find(|(empty, _)| *empty)
            .map_or(Ok(()), |(_, what)| Err(SchemeError::MinAboveMax(what)))
    }
}

/// The mean rate in Hz over the visible resident pages of a region. Example: if every sixteenth page is
/// touched at 160 Hz, the mean is 10 Hz.
///
/// If touches came too late to give a rate, the result is the rate that corresponds to the share of accessed
/// pages.
#[must_use]
pub fn mean_hz(view: &RegionView, sample: Duration) -> f64 {
    if view.rate.hz > 0.0 {
        return f64::from(view.rate.hz) * f64::from(view.touched_bp) / 10_000.0;
    }
    let share = f64::from(view.accesses_bp.min(9_999)) / 10_000.0;
    -(-share).ln_1p() / sample.as_secs_f64().max(1e-9)
}

/// The rate in Hz at which `percent` of the pages are found accessed within 5 ms, the kernel's sampling
/// interval: 5 % is 10.3 Hz; 100 % is an infinite rate.
#[must_use]
pub fn hz_of_percent(percent: f64) -> f64 {
    -(-percent / 100.0).ln_1p() / 0.005
}

#[cfg(test)]
mod tests {
    use super::super::testing::view;
    use super::*;

    const SAMPLE: Duration = Duration::from_millis(20);

    #[test]
    fn percent_is_of_five_milliseconds() {
        assert!((hz_of_percent(5.0) - 10.26).abs() < 0.01);
        assert_eq!(hz_of_percent(0.0), 0.0);
        assert_eq!(hz_of_percent(100.0), f64::INFINITY);
    }

    #[test]
    fn both_ends_match() {
        let s = Duration::from_secs;
        let p = Pattern { size: 4096..=8192, hz: 10.0..=20.0, age: s(5)..=s(9) };
        let matches = |pages, hz, age| p.matches(&view(0, pages, hz, s(age)), SAMPLE);
        assert!(matches(1, 10.0, 5) && matches(2, 20.0, 9));
        assert!(!matches(3, 10.0, 5) && !matches(1, 9.5, 5) && !matches(1, 20.5, 5));
        assert!(!matches(1, 10.0, 4) && !matches(1, 10.0, 10));
        assert!(Pattern::default().matches(&view(0, 1, 0.0, s(0)), SAMPLE));
    }

    #[test]
    fn a_part_that_is_touched_counts_as_a_part() {
        let sixteenth = RegionView { touched_bp: 625, ..view(0, 16, 160.0, Duration::ZERO) };
        assert!((mean_hz(&sixteenth, SAMPLE) - 10.0).abs() < 1e-6);
    }

    #[test]
    fn touched_without_a_rate_is_not_untouched() {
        let late = RegionView { accesses_bp: 1813, ..view(0, 16, 0.0, Duration::ZERO) };
        assert!((mean_hz(&late, SAMPLE) - 10.0).abs() < 0.01);
        let all = RegionView { accesses_bp: 10_000, ..late };
        assert!(mean_hz(&all, SAMPLE).is_finite());
    }

    #[test]
    fn a_range_that_holds_nothing_is_refused() {
        let odd = |hz| Pattern { hz, ..Pattern::default() }.check();
        assert_eq!(odd(5.0..=1.0), Err(SchemeError::MinAboveMax("rate")));
        assert_eq!(odd(-1.0..=1.0), Err(SchemeError::Rate { low: -1.0, high: 1.0 }));
        assert!(odd(0.0..=f64::NAN).is_err());
        let size = RangeInclusive::new(9, 8);
        let backward = Pattern { size, ..Pattern::default() };
        assert_eq!(backward.check(), Err(SchemeError::MinAboveMax("size")));
    }
}
