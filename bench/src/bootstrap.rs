//! Confidence intervals of medians.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

const RESAMPLES: usize = 10_000;

/// A median with its 95 % interval, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// the median
    pub median: f64,
    /// lower end
    pub low: f64,
    /// upper end
    pub high: f64,
}

/// The median of `values` and its interval by the percentile bootstrap (Efron 1979): medians of
/// 10,000 samples drawn from `values` with replacement, less 2.5 % at either end. The same seed
/// gives the same interval; no values, no estimate.
pub fn median_of(values: &[f64], seed: u64) -> Option<Estimate> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = || values.get(below(&mut rng, values.len())).copied();
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let sample: Option<Vec<f64>> = values.iter().map(|_| draw()).collect();
        medians.push(middle(sample?)?);
    }
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians.get((share * (RESAMPLES - 1) as f64).round() as usize).copied();
    Some(Estimate { median: middle(values.to_vec())?, low: at(0.025)?, high: at(0.975)? })
}

/// A random number below `n`.
pub(crate) fn below(rng: &mut impl Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

/// The middle one, or the mean of the two in the middle; none of no values.
pub fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = *values.get(half)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[half - 1] + upper) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few() {
        let median = |values: &[f64]| median_of(values, 1).map(|e| e.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn equal_values_leave_no_doubt() {
        let e = median_of(&[0.5; 20], 1);
        assert_eq!(e, Some(Estimate { median: 0.5, low: 0.5, high: 0.5 }));
    }

    #[test]
    fn one_outlier_moves_nothing() {
        let mut values = vec![0.01; 19];
        values.push(0.9);
        assert_eq!(median_of(&values, 1).unwrap().high, 0.01);
    }

    /// Of 60 samples of a known distribution, about 95 % have the true median in their interval.
    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut sample = || -> Vec<f64> { (0..20).map(|_| below(&mut rng, 1001) as f64).collect() };
        let held = (0..60).filter(|&seed| {
            let e = median_of(&sample(), seed).unwrap();
            e.low <= 500.0 && 500.0 <= e.high
        });
        let held = held.count();
        assert!((50..=59).contains(&held), "{held} of 60");
    }

    #[test]
    fn the_seed_decides() {
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(median_of(&values, 7), median_of(&values, 7));
    }
}
