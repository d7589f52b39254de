//! A figure with its standard error.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::statistics::{median, summary};

/// Minimum number of repetitions for the median; with fewer, the mean is used. The median is insensitive to one
/// outlier.
const FOR_A_MEDIAN: usize = 3;
/// Standard error of the median relative to that of the mean, for many normally distributed values: sqrt(pi/2).
const OF_A_MEDIAN: f64 = 1.253;
/// A 95 % interval has this many standard errors on each side (normal distribution).
const WITHIN: f64 = 1.96;

/// A figure with its standard error, if that can be estimated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// the figure
    pub value: f64,
    /// standard error, in the unit of the figure
    pub error: Option<f64>,
}

impl Estimate {
    /// The estimate from repetitions; `None` if there are none.
    pub fn of(repetitions: &[f64]) -> Option<Self> {
        let s = summary(repetitions)?;
        let error = s.stdev / (s.count as f64).sqrt();
        Some(if s.count < FOR_A_MEDIAN {
            Estimate { value: s.mean, error: (s.count > 1).then_some(error) }
        } else {
            Estimate { value: median(repetitions)?, error: Some(OF_A_MEDIAN * error) }
        })
    }

    /// The estimate from repetitions that have errors of their own; `None` if there are none. Its error is that of
    /// the spread, but at least that of their mean or median by their own errors: the spread of few repetitions may be too
    /// small by chance.
    pub fn of_estimates(repetitions: &[Estimate]) -> Option<Self> {
        let values: Vec<f64> = repetitions.iter().map(|e| e.value).collect();
        let spread = Estimate::of(&values)?;
        let factor = if values.len() < FOR_A_MEDIAN { 1.0 } else { OF_A_MEDIAN };
        let own = Estimate::mean(repetitions).and_then(|mean| mean.error).map(|e| factor * e);
        Some(Estimate { error: spread.error.into_iter().chain(own).reduce(f64::max), ..spread })
    }

    /// The mean of several independent estimates; `None` if there are none. It has an error if all of them have
    /// one.
    pub fn mean(all: &[Estimate]) -> Option<Self> {
        let n = all.len() as f64;
        let errors: Option<Vec<f64>> = all.iter().map(|e| e.error).collect();
        let error = errors.map(|e| e.into_iter().fold(0.0, f64::hypot) / n);
        let sum: f64 = all.iter().map(|e| e.value).sum();
        (!all.is_empty()).then(|| Estimate { value: sum / n, error })
    }

    /// The 95 % confidence interval.
    pub fn interval(self) -> Option<(f64, f64)> {
        self.error.map(|e| (self.value - WITHIN * e, self.value + WITHIN * e))
    }
}

/// The figure with its standard error, if it has one.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.value)?;
        self.error.map_or(Ok(()), |e| write!(f, " ± {e:.2}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_repetitions() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[7.0]), Some(Estimate { value: 7.0, error: None }));
        let two = Estimate::of(&[1.0, 3.0]).unwrap();
        assert!((two.value - 2.0).abs() < 1e-12 && (two.error.unwrap() - 1.0).abs() < 1e-12);
        let three = Estimate::of(&[1.0, 50.0, 2.0]).unwrap();
        assert_eq!(three.value, 2.0, "one went astray");
        assert!(three.error.unwrap() > 15.0, "which shows");
    }

    #[test]
    fn of_repetitions_with_errors() {
        let of = |value, error| Estimate { value, error };
        assert_eq!(Estimate::of_estimates(&[]), None);
        assert_eq!(Estimate::of_estimates(&[of(1.0, Some(0.5))]), Some(of(1.0, Some(0.5))));
        let like = [1.0, 1.0].map(|value| of(value, Some(0.4)));
        let like = Estimate::of_estimates(&like).unwrap();
        assert!((like.error.unwrap() - 0.4 / 2f64.sqrt()).abs() < 1e-12, "{like}");
        let unlike = Estimate::of_estimates(&[of(0.0, Some(0.4)), of(4.0, None)]).unwrap();
        assert_eq!(unlike, of(2.0, Some(2.0)), "their spread");
    }

    #[test]
    fn means_and_their_interval() {
        let of = |value, error| Estimate { value, error };
        let mean = Estimate::mean(&[of(1.0, Some(0.3)), of(3.0, Some(0.4))]).unwrap();
        assert!((mean.value - 2.0).abs() < 1e-9 && (mean.error.unwrap() - 0.25).abs() < 1e-9);
        let (low, high) = mean.interval().unwrap();
        assert!((low - 1.51).abs() < 1e-9 && (high - 2.49).abs() < 1e-9);
        assert_eq!(Estimate::mean(&[of(1.0, None), of(3.0, Some(0.4))]).unwrap().error, None);
        assert_eq!(Estimate::mean(&[]), None);
        assert_eq!(of(1.234, None).to_string(), "1.23");
        assert_eq!(mean.to_string(), "2.00 ± 0.25");
    }
}
