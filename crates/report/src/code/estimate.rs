//! Bytes estimated from sampled pages.

use std::ops::AddAssign;

use isotherm_core::HeatBytes;
use serde::Serialize;

/// The number of standard deviations of a 95 % interval.
const Z: f64 = 1.96;

/// An estimate, and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Estimate {
    /// bytes
    #[serde(rename = "value")]
    pub bytes: f64,
    /// lower end of the interval
    pub low: f64,
    /// upper end of the interval
    pub high: f64,
}

/// A sum over sampled pages. Each sample stands for `weight` faults.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct WeightedSum {
    pub bytes: f64,
    variance: f64,
}

impl WeightedSum {
    /// One sample, of which `bytes` belong to the sum.
    pub(crate) fn sample(bytes: f64, weight: u64) -> Self {
        let w = weight as f64;
        // Of w faults, one was sampled: with w = 1 the sum is exact.
        WeightedSum { bytes: w * bytes, variance: w * (w - 1.0).max(0.0) * bytes * bytes }
    }

    fn scaled(self, share: f64) -> Self {
        WeightedSum { bytes: self.bytes * share, variance: self.variance * share * share }
    }

    /// The estimate. The number of samples has a Poisson distribution, whose 95 % interval is approximated after
    /// Wilson and Hilferty. Example: 4 samples that stand for 1 MiB each are 4 MiB (1.1 to 10.2 MiB).
    pub(crate) fn estimate(&self) -> Estimate {
        if self.variance <= 0.0 {
            return Estimate { bytes: self.bytes, low: self.bytes, high: self.bytes };
        }
        // The number of equal samples that have this relative error.
        let n = self.bytes * self.bytes / self.variance;
        let unit = self.bytes / n;
        Estimate { bytes: self.bytes, low: unit * root(n, -Z), high: unit * root(n + 1.0, Z) }
    }

    /// The estimate of a part of `whole`. If no sample belongs to the part, it may still be as large as 3.7 samples
    /// (95 %). Example: 0 of 4 samples that stand for 256 KiB each are 0 (0 to 940 KiB).
    pub(crate) fn estimate_of(&self, whole: &Self) -> Estimate {
        match self.bytes <= 0.0 && whole.bytes > 0.0 {
            true => {
                Estimate { high: whole.variance / whole.bytes * root(1.0, Z), ..self.estimate() }
            }
            false => self.estimate(),
        }
    }
}

/// An end of the interval of a Poisson count, by Wilson and Hilferty: the lower one of `n` with -z, the upper one of
/// `n` - 1 with z.
fn root(n: f64, z: f64) -> f64 {
    n * (1.0 - 1.0 / (9.0 * n) + z / (3.0 * n.sqrt())).max(0.0).powi(3)
}

impl AddAssign for WeightedSum {
    fn add_assign(&mut self, o: Self) {
        self.bytes += o.bytes;
        self.variance += o.variance;
    }
}

/// A sum over the cold bytes of sampled pages, for their mean idle age.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct IdleSum {
    bytes: f64,
    /// bytes times their age in ms
    by_age: f64,
    /// the squares of the bytes of each sample, and these times its age and the square of its age
    squares: [f64; 3],
}

impl IdleSum {
    fn sample(bytes: f64, age_ms: f64) -> Self {
        let square = bytes * bytes;
        let squares = [square, square * age_ms, square * age_ms * age_ms];
        IdleSum { bytes, by_age: bytes * age_ms, squares }
    }

    fn scaled(self, share: f64) -> Self {
        IdleSum {
            bytes: self.bytes * share,
            by_age: self.by_age * share,
            squares: self.squares.map(|n| n * share * share),
        }
    }

    /// The mean idle age in ms, 0 if nothing is cold.
    pub(crate) fn mean(&self) -> f64 {
        if self.bytes > 0.0 { self.by_age / self.bytes } else { 0.0 }
    }

    /// The 95 % interval of the mean, as that of a ratio (Cochran, Sampling Techniques, 1977). `None` if there are fewer than
    /// two samples, or one has nearly all of the bytes. Example: two equal samples with 10 and 20 s have the error 5 s of
    /// one divided by the root of two, times the root of 2/1: 15 s (5.2 to 24.8 s).
    pub(crate) fn interval(&self) -> Option<[f64; 2]> {
        let [of_ones, of_ages, of_squares] = self.squares;
        // The number of equal samples that have this relative error.
        let n = self.bytes * self.bytes / of_ones;
        if n.is_nan() || n < 1.5 {
            return None;
        }
        let mean = self.mean();
        let deviations = (of_squares - 2.0 * mean * of_ages + mean * mean * of_ones).max(0.0);
        let error = Z * (deviations * n / (n - 1.0)).sqrt() / self.bytes;
        Some([(mean - error).max(0.0), mean + error])
    }
}

impl AddAssign for IdleSum {
    fn add_assign(&mut self, o: Self) {
        self.bytes += o.bytes;
        self.by_age += o.by_age;
        self.squares.iter_mut().zip(o.squares).for_each(|(sum, n)| *sum += n);
    }
}

/// Sums by heat.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct HeatSum {
    pub hot: WeightedSum,
    pub warm: WeightedSum,
    pub cold: WeightedSum,
    pub unknown: WeightedSum,
    pub resident: WeightedSum,
    pub idle: IdleSum,
}

impl HeatSum {
    /// `len` resident bytes of a sampled page or allocation that lies in memory of this heat.
    pub(crate) fn sample(len: f64, heat: &HeatBytes, age_ms: f64, weight: u64) -> Self {
        let resident = heat.resident().max(1) as f64;
        let part = |bytes: u64| WeightedSum::sample(len * bytes as f64 / resident, weight);
        let cold = part(heat.cold);
        HeatSum {
            hot: part(heat.hot),
            warm: part(heat.warm),
            cold,
            unknown: part(heat.unknown),
            resident: part(heat.resident()),
            idle: IdleSum::sample(cold.bytes, age_ms),
        }
    }

    /// A share of it.
    pub(crate) fn scaled(self, share: f64) -> Self {
        HeatSum {
            hot: self.hot.scaled(share),
            warm: self.warm.scaled(share),
            cold: self.cold.scaled(share),
            unknown: self.unknown.scaled(share),
            resident: self.resident.scaled(share),
            idle: self.idle.scaled(share),
        }
    }
}

impl AddAssign for HeatSum {
    fn add_assign(&mut self, o: Self) {
        self.hot += o.hot;
        self.warm += o.warm;
        self.cold += o.cold;
        self.unknown += o.unknown;
        self.resident += o.resident;
        self.idle += o.idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(samples: u32, weight: u64) -> Estimate {
        let mut sum = WeightedSum::default();
        (0..samples).for_each(|_| sum += WeightedSum::sample(4096.0, weight));
        sum.estimate()
    }

    #[test]
    fn every_fault_sampled_is_exact() {
        let e = sum(100, 1);
        assert_eq!((e.bytes, e.low, e.high), (409_600.0, 409_600.0, 409_600.0));
    }

    /// The exact interval of 4 is 1.09 to 10.24, and of 100 is 81.4 to 121.6.
    #[test]
    fn few_samples_have_the_interval_of_their_count() {
        let weight = 1 << 20;
        for (n, low, high) in [(4, 1.09, 10.24), (100, 81.4, 121.6)] {
            let e = sum(n, weight);
            let mib = |bytes: f64| bytes / 4096.0 / weight as f64;
            assert!((mib(e.low) - low).abs() < 0.03 * low, "{n}: {}", mib(e.low));
            assert!((mib(e.high) - high).abs() < 0.03 * high, "{n}: {}", mib(e.high));
        }
    }

    #[test]
    fn the_mean_idle_age_has_the_interval_of_its_samples() {
        let sum = |ages: &[f64]| {
            let mut sum = IdleSum::default();
            ages.iter().for_each(|&age| sum += IdleSum::sample(4096.0, age));
            sum
        };
        assert_eq!((sum(&[]).mean(), sum(&[]).interval()), (0.0, None));
        assert_eq!((sum(&[7.0]).mean(), sum(&[7.0]).interval()), (7.0, None));
        assert_eq!(sum(&[7.0, 7.0]).interval(), Some([7.0, 7.0]));
        let [low, high] = sum(&[10.0, 20.0]).interval().unwrap();
        assert!((low - 5.2).abs() < 0.01 && (high - 24.8).abs() < 0.01, "{low}..{high}");
        let mut unequal = sum(&[10.0]);
        unequal += IdleSum::sample(4e6, 20.0);
        assert_eq!(unequal.interval(), None, "one sample has nearly all of the bytes");
        assert_eq!(sum(&[10.0, 20.0]).scaled(0.5).interval(), Some([low, high]));
    }

    /// The exact upper end of 0 is 3.69.
    #[test]
    fn no_sample_of_a_part_does_not_mean_nothing() {
        let none = WeightedSum::default();
        let mut whole = WeightedSum::default();
        (0..4).for_each(|_| whole += WeightedSum::sample(4096.0, 64));
        let e = none.estimate_of(&whole);
        assert_eq!((e.bytes, e.low), (0.0, 0.0));
        let samples = e.high / (64.0 * 4096.0);
        assert!((samples - 3.69).abs() < 0.08, "{samples}");
        assert!(e.high < whole.estimate().high);
        assert_eq!(whole.estimate_of(&whole), whole.estimate());
        // Without samples there is no whole, and with all pages sampled there is no doubt.
        assert_eq!(none.estimate_of(&none), Estimate::default());
        assert_eq!(none.estimate_of(&WeightedSum::sample(4096.0, 1)), Estimate::default());
    }

    proptest! {
        #[test]
        fn an_interval_contains_its_estimate(
            samples in prop::collection::vec((0.0..4096.0f64, 1u64..100_000), 0..50),
        ) {
            let mut sum = WeightedSum::default();
            samples.iter().for_each(|&(bytes, weight)| sum += WeightedSum::sample(bytes, weight));
            let e = sum.estimate();
            prop_assert!(0.0 <= e.low && e.low <= e.bytes && e.bytes <= e.high, "{e:?}");
        }
    }
}
