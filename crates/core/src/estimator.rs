//! Estimates a rate from counts of accessed pages.

use std::time::Duration;

/// A first-touch rate of a page in Hz, with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rate {
    /// estimate
    pub hz: f32,
    /// lower bound of the interval
    pub low: f32,
    /// upper bound of the interval
    pub high: f32,
}

impl Rate {
    /// Half of the width of the interval, as a binary logarithm; `None` if the interval is open on one side.
    #[must_use]
    pub fn error_log2(&self) -> Option<f32> {
        let bounded = self.low > 0.0 && self.high.is_finite();
        (self.hz > 0.0 && bounded).then(|| (self.high / self.low).log2() / 2.0)
    }
}

/// Estimates the rate of pages of which `young` of `present` were accessed within `exposure`.
///
/// A page touched at rate l is found accessed after time s with probability p = 1 - exp(-l s), so that l =
/// -ln(1 - p) / s. The interval is Wilson's interval for p. Pages of one window are not independent;
/// therefore the interval counts `looks` (windows) instead of pages, if there are fewer looks. If all pages
/// were accessed, the data limit the rate only from below: the estimate then presumes half a page missed, and
/// the upper bound is infinite. Example: 160 of 320 pages in 20 ms: p = 0.5, 34.7 Hz.
#[must_use]
pub fn rate(young: f64, present: f64, looks: u64, exposure: Duration) -> Rate {
    let seconds = exposure.as_secs_f64();
    if present <= 0.0 || looks == 0 || seconds <= 0.0 {
        return Rate { hz: 0.0, low: 0.0, high: f32::INFINITY };
    }
    let p = (young / present).clamp(0.0, 1.0);
    let hz = |p: f64| (-(-p).ln_1p() / seconds) as f32;
    let (low, high) = wilson(p, present.min(looks as f64));
    Rate {
        hz: hz(p.min(1.0 - 0.5 / present.max(1.0))),
        low: hz(low.min(p)),
        high: if young >= present { f32::INFINITY } else { hz(high) },
    }
}

/// Wilson's score interval at 95 % for a share `p` of `n` trials.
fn wilson(p: f64, n: f64) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    let z2 = Z * Z;
    let centre = p + z2 / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    (((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS20: Duration = Duration::from_millis(20);

    #[test]
    fn half_the_pages_in_20_ms_is_35_hz() {
        let r = rate(160.0, 320.0, 20, MS20);
        assert!((r.hz - 34.66).abs() < 0.01, "{r:?}");
        assert!(r.low < r.hz && r.hz < r.high, "{r:?}");
    }

    #[test]
    fn nothing_young_is_zero_with_an_upper_bound() {
        let r = rate(0.0, 320.0, 20, MS20);
        assert_eq!((r.hz, r.low), (0.0, 0.0));
        assert!(r.high > 5.0 && r.high < 15.0, "{r:?}");
    }

    /// For some counts, rounding makes Wilson's bound nonzero.
    #[test]
    fn nothing_young_is_zero_for_any_number_of_looks() {
        for looks in 1..1000 {
            assert_eq!(rate(0.0, looks as f64 * 16.0, looks, MS20).low, 0.0, "{looks}");
        }
    }

    #[test]
    fn everything_young_is_only_bounded_from_below() {
        let r = rate(320.0, 320.0, 20, MS20);
        assert!(r.hz > 300.0 && r.low > 80.0 && r.high.is_infinite(), "{r:?}");
    }

    /// Four resident pages in a hundred windows are four trials, not a hundred.
    #[test]
    fn few_pages_give_no_bound_above_the_estimate() {
        let r = rate(4.0, 4.0, 100, MS20);
        assert!(r.low <= r.hz && r.low < 50.0, "{r:?}");
    }

    #[test]
    fn no_looks_say_nothing() {
        let r = rate(0.0, 0.0, 0, MS20);
        assert_eq!(r.low, 0.0);
        assert!(r.high.is_infinite());
    }
}
