//! Latency of memory by load: the curve that the seed quotes, and the distribution of accesses with the least
//! mean latency.

use serde::{Deserialize, Serialize};

/// Number of shares that are tried.
const NR_SHARES: u32 = 1000;
/// Tolerance of a load for rounding errors.
const ROUNDING: f64 = 1e-9;

/// Latency by load: constant, then linear, then exponential. A load is a fraction of the bandwidth that a node
/// can sustain, a latency a multiple of the idle latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// constant up to this load
    pub flat: f64,
    /// linear up to this load
    pub straight: f64,
    /// increase up to there
    pub rise: f64,
    /// latency at full load
    pub full: f64,
}

impl Default for Curve {
    /// The seed's curve, with an assumed increase, which the seed does not state.
    fn default() -> Self {
        Curve { flat: 0.4, straight: 0.8, rise: 0.3, full: 2.0 }
    }
}

/// Two nodes over which accesses can be distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// in 10^9 bytes a second, the near one first
    pub bandwidths: [f64; 2],
    /// in ns
    pub idle_ns: [f64; 2],
    /// of both
    pub curve: Curve,
}

impl Curve {
    /// Whether the curve rises over its whole range.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        0.0 < self.flat
            && self.flat < self.straight
            && self.straight < 1.0
            && 0.0 <= self.rise
            && self.full >= 1.0 + self.rise
            && self.full.is_finite()
    }

    /// Latency as a multiple of the idle latency; `None` above full load.
    #[must_use]
    pub fn at(&self, load: f64) -> Option<f64> {
        let knee = 1.0 + self.rise;
        if load > 1.0 + ROUNDING {
            return None;
        }
        if load <= self.flat {
            return Some(1.0);
        }
        if load <= self.straight {
            return Some(1.0 + self.rise * (load - self.flat) / (self.straight - self.flat));
        }
        let beyond = (load - self.straight) / (1.0 - self.straight);
        Some(knee * (self.full / knee).powf(beyond))
    }
}

impl Pair {
    /// The mean latency in ns at a bandwidth, if the far node serves the share `far`; `None` if this exceeds
    /// the bandwidth of either node.
    #[must_use]
    pub fn mean(&self, bandwidth: f64, far: f64) -> Option<f64> {
        let shares = [1.0 - far, far];
        let each = (0..2).map(|i| {
            let load = bandwidth * shares[i] / self.bandwidths[i];
            Some(shares[i] * self.idle_ns[i] * self.curve.at(load)?)
        });
        each.sum()
    }

    /// The far node's share with the least mean latency, in steps of 1/1000, or the share by bandwidth, which
    /// supports the highest load. `None` if no share supports this bandwidth.
    #[must_use]
    pub fn best(&self, bandwidth: f64) -> Option<f64> {
        let shares = (0..=NR_SHARES).map(|i| f64::from(i) / f64::from(NR_SHARES));
        let [near, far] = self.bandwidths;
        let means = shares
            .chain([far / (near + far)])
            .filter_map(|far| Some((self.mean(bandwidth, far)?, far)));
        means.min_by(|a, b| a.0.total_cmp(&b.0)).map(|best| best.1)
    }

    /// The bandwidth above which the least mean latency requires the far node.
    #[must_use]
    pub fn threshold(&self) -> f64 {
        let (mut none, mut some) = (0.0, self.bandwidths.iter().sum());
        for _ in 0..40 {
            let middle = (none + some) / 2.0;
            if self.best(middle) == Some(0.0) { none = middle } else { some = middle }
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(far_ns: f64, full: f64) -> Pair {
        let curve = Curve { full, ..Curve::default() };
        Pair { bandwidths: [200.0, 22.0], idle_ns: [100.0, far_ns], curve }
    }

    #[test]
    fn corners() {
        for (load, times) in [(0.0, 1.0), (0.4, 1.0), (0.6, 1.15), (0.8, 1.3), (1.0, 2.0)] {
            assert!((Curve::default().at(load).unwrap() - times).abs() < 1e-12, "{load}");
        }
        assert_eq!(Curve::default().at(1.01), None);
        assert!(Curve::default().is_plausible());
        assert!(!Curve { full: 1.2, ..Curve::default() }.is_plausible());
        assert!(!Curve { straight: 0.3, ..Curve::default() }.is_plausible());
        assert!(!Curve { rise: f64::NAN, ..Curve::default() }.is_plausible());
    }

    /// As long as DRAM has a fifth of its bandwidth left, nothing is gained by going elsewhere,
    /// however steep the end of the curve is.
    #[test]
    fn interleaving_pays_above_four_fifths_of_dram() {
        for (far_ns, full) in [(200.0, 2.0), (300.0, 2.0), (250.0, 5.0)] {
            let pair = pair(far_ns, full);
            assert!((pair.threshold() / 200.0 - 0.8).abs() < 0.03, "{far_ns} {full}");
            assert_eq!(pair.best(100.0), Some(0.0));
            assert!(pair.best(190.0).unwrap() > 0.0);
            assert!(pair.best(222.0).is_some(), "just what both have");
            assert_eq!(pair.best(230.0), None, "more than both have");
        }
    }

    proptest! {
        #[test]
        fn the_curve_rises(a in 0.0_f64..1.0, b in 0.0_f64..1.0) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(Curve::default().at(low).unwrap() <= Curve::default().at(high).unwrap() + 1e-12);
        }

        #[test]
        fn nothing_is_better_than_the_best(load in 1.0_f64..222.0, far in 0_u32..=1000) {
            let pair = pair(250.0, 2.0);
            if let Some(mean) = pair.mean(load, f64::from(far) / 1000.0) {
                prop_assert!(pair.mean(load, pair.best(load).unwrap()).unwrap() <= mean + 1e-9);
            }
        }
    }
}
