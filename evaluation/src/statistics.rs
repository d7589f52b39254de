//! Statistics of several runs.

use isotherm_bench::bootstrap::middle;

/// A figure of several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunStatistics {
    /// how many
    pub count: usize,
    /// average
    pub mean: f64,
    /// of a sample; 0 of one
    pub stdev: f64,
    /// least
    pub min: f64,
    /// most
    pub max: f64,
}

/// Sums up; none of no values.
pub fn summary(values: &[f64]) -> Option<RunStatistics> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let count = values.len();
    Some(RunStatistics {
        count,
        mean,
        stdev: if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 },
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// The average; none of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle one, or the mean of the two in the middle; none of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    middle(values.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_four() {
        let s = summary(&[2.0, 4.0, 4.0, 6.0]).unwrap();
        assert_eq!((s.count, s.mean, s.min, s.max), (4, 4.0, 2.0, 6.0));
        assert!((s.stdev - (8.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(median(&[5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[5.0, 1.0, 3.0, 4.0]), Some(3.5));
    }

    #[test]
    fn of_one_and_of_none() {
        assert_eq!(summary(&[3.0]).unwrap().stdev, 0.0);
        assert_eq!((summary(&[]), mean(&[]), median(&[])), (None, None, None));
    }
}
