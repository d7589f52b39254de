//! Rates as a record stores them: without meaningless digits.
//!
//! The interval of a rate rarely leaves more than one significant digit, and noise does not compress: unrounded
//! rates would fill most of a record.

use isotherm_core::{Rate, Snapshot};

/// Minimal number of mantissa bits to keep after the first one: the relative error is at most 1/4.
const MIN_BITS: u32 = 1;
/// Maximal number of mantissa bits to keep: the relative error is at most 1/512.
const MAX_BITS: u32 = 8;
/// The error is at most this part of the interval, both on a logarithmic scale.
const MAX_INTERVAL_SHARE: f32 = 1.0 / 16.0;
/// Mantissa bits of an `f32`.
const MANTISSA: u32 = f32::MANTISSA_DIGITS - 1;

/// `s` as a record stores it. Its rates, and the ends of their intervals, are rounded to as few bits of mantissa
/// as possible (1 to 8). None changes by more than 1/16 of the interval, ln(high / low). The order of the three
/// values is kept, as are zero and infinity. Example: 2.86 Hz with the interval 0.40 to 17.9 becomes 3 Hz with
/// 0.38 to 16.
#[must_use]
pub fn rounded(s: &Snapshot) -> Snapshot {
    let mut s = s.clone();
    for region in s.targets.iter_mut().flat_map(|t| &mut t.regions) {
        region.rate = rate(region.rate);
    }
    s
}

/// Rounds all three values with the same number of bits, so that their order is kept.
fn rate(r: Rate) -> Rate {
    let bits = bits(r);
    Rate { hz: keep(r.hz, bits), low: keep(r.low, bits), high: keep(r.high, bits) }
}

/// The number of mantissa bits for `r`. An interval that is open above counts as symmetric around the rate on a
/// logarithmic scale.
fn bits(r: Rate) -> u32 {
    let ratio = if r.high.is_finite() { r.high / r.low } else { (r.hz / r.low).powi(2) };
    // With n bits, the error is at most 2^-(n + 1). A negative number or NaN becomes 0 bits before the clamp.
    let wanted = -(MAX_INTERVAL_SHARE * ratio.ln()).log2() - 1.0;
    (wanted.ceil() as u32).clamp(MIN_BITS, MAX_BITS)
}

/// The nearest number with `bits` bits of mantissa; a finite number stays finite.
fn keep(hz: f32, bits: u32) -> f32 {
    let drop = MANTISSA - bits;
    let cut = |x: u32| f32::from_bits(x >> drop << drop);
    let nearest = cut(hz.to_bits() + (1 << (drop - 1)));
    if nearest.is_finite() { nearest } else { cut(hz.to_bits()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use isotherm_core::rate as estimate;
    use proptest::prelude::*;

    use super::*;

    fn error(of: f32, to: f32) -> f32 {
        if of == to { 0.0 } else { (to / of - 1.0).abs() }
    }

    proptest! {
        #[test]
        fn the_error_is_far_below_the_interval(
            looks in 1..5000u64,
            share in 0.0..=1.0f64,
            ms in 1..100u64,
        ) {
            let pages = looks as f64 * 16.0;
            let young = (pages * share).round();
            let r = estimate(young, pages, looks, Duration::from_millis(ms));
            let kept = rate(r);
            prop_assert!(kept.low <= kept.hz && kept.hz <= kept.high, "{r:?} {kept:?}");
            let width = if r.high.is_finite() { r.high / r.low } else { (r.hz / r.low).powi(2) };
            let bound = (width.ln() / 16.0).clamp(1.0 / 512.0, 0.25) * 1.001;
            for (of, to) in [(r.hz, kept.hz), (r.low, kept.low), (r.high, kept.high)] {
                prop_assert!(error(of, to) <= bound, "{r:?} {kept:?}");
            }
        }

        #[test]
        fn any_rates_keep_their_order(hz in any::<[f32; 3]>()) {
            let mut hz = hz.map(f32::abs).map(|x| if x.is_nan() { 0.0 } else { x });
            hz.sort_by(f32::total_cmp);
            let kept = rate(Rate { low: hz[0], hz: hz[1], high: hz[2] });
            prop_assert!(kept.low <= kept.hz && kept.hz <= kept.high, "{hz:?} {kept:?}");
            for (of, to) in [(hz[0], kept.low), (hz[1], kept.hz), (hz[2], kept.high)] {
                prop_assert_eq!(of.is_finite(), to.is_finite());
            }
        }
    }

    #[test]
    fn exact_values_stay_exact() {
        for r in [
            Rate { hz: 0.0, low: 0.0, high: f32::INFINITY },
            Rate { hz: f32::INFINITY, low: 0.0, high: f32::INFINITY },
            Rate { hz: 12.0, low: 8.0, high: 16.0 },
        ] {
            assert_eq!(rate(r), r);
        }
    }

    /// The narrower the interval, the more is kept.
    #[test]
    fn precise_rates_keep_their_precision() {
        let wide = Rate { hz: 2.863, low: 0.4035, high: 17.92 };
        assert_eq!(rate(wide), Rate { hz: 3.0, low: 0.375, high: 16.0 });
        let narrow = Rate { hz: 287.3, low: 285.0, high: 289.9 };
        assert!(error(narrow.hz, rate(narrow).hz) <= 1.0 / 512.0);
    }
}
