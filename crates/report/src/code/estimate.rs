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
        let root =
            |n: f64, z: f64| n * (1.0 - 1.0 / (9.0 * n) + z / (3.0 * n.sqrt())).max(0.0).powi(3);
        let unit = self.bytes / n;
        Estimate { bytes: self.bytes, low: unit * root(n, -Z), high: unit * root(n + 1.0, Z) }
    }
}

impl AddAssign for WeightedSum {
    fn add_assign(&mut self, o: Self) {
        self.bytes += o.bytes;
        self.variance += o.variance;
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
    /// bytes of cold memory times its idle age in ms
    pub idle: f64,
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
            idle: cold.bytes * age_ms,
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
            idle: self.idle * share,
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
