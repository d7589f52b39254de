//! Percentiles of any number of values in limited memory.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Unit of the weights in the histogram.
const WEIGHT_UNIT: f64 = 1e-6;
/// Significant digits of values in the histogram: the error is below 0.1 %.
const DIGITS: u8 = 3;

/// Weighted values, for percentiles. They are exact up to a limited number of different values. Beyond the
/// limit, the values go into a histogram, and percentiles are too large by less than 0.1 %.
#[derive(Debug, Clone)]
pub(crate) struct Distribution {
    values: Vec<(u64, f64)>,
    limit: usize,
    beyond: Option<Histogram<u64>>,
    bounds: Option<(u64, u64)>,
    weighed: f64,
    weight: f64,
}

/// A percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentile {
    /// the share of the weight that does not exceed the value
    pub percent: f64,
    /// the value
    pub value: u64,
}

impl Distribution {
    /// Keeps up to `limit` different values, 16 bytes each.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.max(2);
        let values = Vec::new();
        Distribution { values, limit, beyond: None, bounds: None, weighed: 0.0, weight: 0.0 }
    }

    pub(crate) fn push(&mut self, value: u64, weight: f64) {
        if self.values.len() >= self.limit {
            self.make_room();
        }
        match &mut self.beyond {
            Some(histogram) => count(histogram, value, weight),
            None => self.values.push((value, weight)),
        }
        let (least, most) = self.bounds.unwrap_or((value, value));
        self.bounds = Some((least.min(value), most.max(value)));
        self.weighed += value as f64 * weight;
        self.weight += weight;
    }

    /// Whether percentiles are exact.
    pub(crate) fn is_exact(&self) -> bool {
        self.beyond.is_none()
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.weighed / self.weight } else { 0.0 }
    }

    fn sort(&mut self) {
        self.values.sort_by_key(|v| v.0);
        self.values.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            kept.1 += if same { later.1 } else { 0.0 };
            same
        });
    }

    /// Merges equal values; if that is not enough, changes to the histogram.
    fn make_room(&mut self) {
        self.sort();
        if self.values.len() > self.limit / 2 {
            // Cannot fail for up to 5 digits.
            let Ok(mut histogram) = Histogram::new(DIGITS) else { return };
            self.values.drain(..).for_each(|(value, weight)| count(&mut histogram, value, weight));
            self.values.shrink_to_fit();
            self.beyond = Some(histogram);
        }
    }

    /// For each of `percents` (0 to 100), the smallest value that at least this share of the weight does not
    /// exceed; for 0, the smallest value.
    pub(crate) fn percentiles(&mut self, percents: &[f64]) -> Vec<Percentile> {
        let value = |&percent| Percentile { percent, value: self.percentile(percent) };
        percents.iter().map(value).collect()
    }

    /// One of [`Distribution::percentiles`].
    pub(crate) fn percentile(&mut self, percent: f64) -> u64 {
        let Some((least, most)) = self.bounds else { return 0 };
        if percent <= 0.0 {
            return least;
        }
        if let Some(histogram) = &self.beyond {
            return histogram.value_at_quantile(percent / 100.0).clamp(least, most);
        }
        self.sort();
        // Sums of weights are inexact, so a shortfall of one billionth is allowed.
        let wanted = percent / 100.0 * self.weight * (1.0 - 1e-9);
        let mut sum = 0.0;
        let reaches = |v: &&(u64, f64)| {
            sum += v.1;
            sum >= wanted
        };
        self.values.iter().find(reaches).map_or(most, |v| v.0)
    }
}

fn count(histogram: &mut Histogram<u64>, value: u64, weight: f64) {
    // The histogram grows with its values, so this cannot fail for 64-bit values.
    let _ = histogram.record_n(value, ((weight / WEIGHT_UNIT).round() as u64).max(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn percentiles(values: &[(u64, f64)], limit: usize, percents: &[f64]) -> Vec<u64> {
        let mut d = Distribution::new(limit);
        values.iter().for_each(|&(value, weight)| d.push(value, weight));
        d.percentiles(percents).iter().map(|p| p.value).collect()
    }

    #[test]
    fn a_value_counts_by_its_weight() {
        let values = [(30, 1.0), (10, 2.0), (20, 1.0)];
        assert_eq!(percentiles(&values, 10, &[0.0, 50.0, 51.0, 75.0, 100.0]), [10, 10, 20, 20, 30]);
        assert_eq!(percentiles(&[], 10, &[0.0, 50.0]), [0, 0]);
    }

    #[test]
    fn few_different_values_stay_exact_however_many_come() {
        let mut d = Distribution::new(8);
        (0..10_000u64).for_each(|i| d.push(i % 4, 1.0));
        assert!(d.is_exact() && d.values.len() <= 8);
        let values: Vec<_> =
            d.percentiles(&[0.0, 25.0, 26.0, 100.0]).iter().map(|p| p.value).collect();
        assert_eq!(values, [0, 0, 1, 3]);
        assert!((d.mean() - 1.5).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn beyond_the_limit_a_value_is_off_by_a_thousandth(
            mut values in prop::collection::vec(0u64..1 << 40, 1..4000), percent in 0.0f64..=100.0,
        ) {
            const LIMIT: usize = 64;
            let mut d = Distribution::new(LIMIT);
            values.iter().for_each(|&v| d.push(v, 1.0));
            prop_assert!(d.values.len() <= LIMIT);
            let found = d.percentile(percent) as f64;
            values.sort_unstable();
            let rank = (percent / 100.0 * values.len() as f64 * (1.0 - 1e-9)).ceil() as usize;
            let real = values[rank.max(1) - 1] as f64;
            prop_assert!(real <= found && found <= real * 1.001 + 1.0, "{real} is told as {found}");
        }
    }
}
