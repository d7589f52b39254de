//! Positions and labels of ticks.

use isotherm_core::PAGE_SIZE;

use crate::units;

/// A position on an axis, from 0 to 1, and its label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub at: f64,
    pub label: String,
}

/// Round steps of time, in seconds.
const TIME_STEPS_S: [f64; 18] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
    10_800.0, 21_600.0, 43_200.0, 86_400.0,
];

/// At most about `max` ticks from `from` to `to` seconds, and the unit of their labels.
pub(super) fn time_ticks(from: f64, to: f64, max: usize) -> (Vec<Tick>, &'static str) {
    let span = (to - from).max(1e-6);
    let step = time_step(span / max.max(1) as f64);
    let (unit, name) = match step {
        s if s < 1.0 && span < 2.0 => (1e-3, "ms"),
        s if s < 60.0 => (1.0, "s"),
        s if s < 3600.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    };
    // Ticks are counted, not summed up, so that rounding loses no tick.
    let (first, last) = ((from / step - 1e-6).ceil() as u64, (to / step + 1e-6).floor() as u64);
    let tick = |i: u64| {
        let value = i as f64 * step;
        let label = format!("{}", (value / unit * 1e3).round() / 1e3);
        Tick { at: ((value - from) / span).clamp(0.0, 1.0), label }
    };
    ((first..=last).map(tick).collect(), name)
}

/// The smallest round step that is at least `least` seconds.
fn time_step(least: f64) -> f64 {
    if least <= 1.0 {
        let decade = 10f64.powf(least.log10().floor());
        let nice = [1.0, 2.0, 5.0].map(|n| n * decade);
        return nice.into_iter().find(|s| *s >= least * 0.999_999).unwrap_or(10.0 * decade);
    }
    let days = || (least / 86_400.0).ceil() * 86_400.0;
    TIME_STEPS_S.into_iter().find(|s| *s >= least).unwrap_or_else(days)
}

/// At most `max` + 1 ticks at powers of two over `len` bytes, as offsets; no more than 11, so that
/// three decimals make a label exact.
pub(super) fn size_ticks(len: u64, max: usize) -> Vec<Tick> {
    let least = (len / max.clamp(1, 10) as u64).clamp(PAGE_SIZE, 1 << 62);
    let step = least.next_power_of_two();
    let tick = |i: u64| Tick {
        at: (i * step) as f64 / len.max(1) as f64,
        label: if i == 0 { "+0".to_owned() } else { format!("+{}", units::exact_bytes(i * step)) },
    };
    (0..=len / step).map(tick).collect()
}

/// At most about `max` ticks from 0 to `top`, at round numbers.
pub(super) fn count_ticks(top: u64, max: usize) -> Vec<Tick> {
    let tick = |n| Tick { at: n as f64 / top.max(1) as f64, label: units::count(n) };
    round_numbers(top, max).map(tick).collect()
}

/// The same at round values, which have decimals if `top` is below 10: 0, 0.2, 0.4 up to 0.6.
pub(super) fn value_ticks(top: f64, max: usize) -> Vec<Tick> {
    if !(1e-6..10.0).contains(&top) {
        let whole = top.floor();
        let tick = |t: Tick| Tick { at: t.at * whole / top.max(1.0), ..t };
        return count_ticks(whole as u64, max).into_iter().map(tick).collect();
    }
    // At least ten of its parts fit below `top`.
    let parts = 10f64.powi(1 - top.log10().floor() as i32);
    let tick =
        |n| Tick { at: (n as f64 / parts / top).min(1.0), label: (n as f64 / parts).to_string() };
    round_numbers((top * parts) as u64, max).map(tick).collect()
}

/// At most about `max` numbers from 0 to `top`, the multiples of 1, 2 or 5 times a power of ten.
fn round_numbers(top: u64, max: usize) -> impl Iterator<Item = u64> {
    let least = top.div_ceil(max.max(1) as u64).max(1);
    let decade = 10u64.pow(least.ilog10());
    let round = [1, 2, 5, 10].map(|n| decade.saturating_mul(n));
    let step = round.into_iter().find(|s| *s >= least).unwrap_or(least);
    (0..=top / step).map(move |i| i * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(from: f64, to: f64) -> String {
        let (ticks, unit) = time_ticks(from, to, 8);
        let labels: Vec<_> = ticks.into_iter().map(|t| t.label).collect();
        format!("{} {unit}", labels.join(" "))
    }

    #[test]
    fn time_ticks_are_round_in_a_unit_that_fits() {
        assert_eq!(labels(0.0, 60.0), "0 10 20 30 40 50 60 s");
        assert_eq!(labels(0.0, 0.8), "0 100 200 300 400 500 600 700 800 ms");
        assert_eq!(labels(0.0, 3.2), "0 0.5 1 1.5 2 2.5 3 s");
        assert_eq!(labels(12.3, 19.0), "13 14 15 16 17 18 19 s");
        assert_eq!(labels(0.0, 3000.0), "0 10 20 30 40 50 min");
        assert_eq!(labels(0.0, 86_400.0), "0 3 6 9 12 15 18 21 24 h");
    }

    #[test]
    fn size_ticks_are_powers_of_two() {
        let labels: Vec<_> = size_ticks(300 << 20, 4).into_iter().map(|t| t.label).collect();
        assert_eq!(labels, ["+0", "+128 MiB", "+256 MiB"]);
        assert_eq!(size_ticks(1200 << 20, 10)[9].label, "+1.125 GiB");
    }

    #[test]
    fn count_ticks_are_round() {
        let labels: Vec<_> = count_ticks(1060, 6).into_iter().map(|t| t.label).collect();
        assert_eq!(labels, ["0", "200", "400", "600", "800", "1,000"]);
        assert_eq!(count_ticks(1, 6).len(), 2);
    }

    #[test]
    fn values_below_ten_have_decimals() {
        let labels = |top| value_ticks(top, 4).into_iter().map(|t| t.label).collect::<Vec<_>>();
        assert_eq!(labels(0.6), ["0", "0.2", "0.4", "0.6"]);
        assert_eq!(labels(1.9), ["0", "0.5", "1", "1.5"]);
        assert_eq!(labels(0.07), ["0", "0.02", "0.04", "0.06"]);
        assert_eq!(labels(1060.5), ["0", "500", "1,000"]);
        assert_eq!(labels(0.0), ["0"]);
    }

    proptest! {
        #[test]
        fn ticks_ascend_within_the_axis(from in 0.0f64..1e6, span in 1e-3f64..1e7, len in 1u64..1 << 62, max in 1usize..20) {
            let scales = [time_ticks(from, from + span, max).0, size_ticks(len, max), count_ticks(len, max), value_ticks(span, max)];
            for ticks in scales {
                prop_assert!(ticks.len() <= max + 2, "{} of {}", ticks.len(), max);
                prop_assert!(ticks.iter().all(|t| (0.0..=1.0).contains(&t.at)));
                prop_assert!(ticks.windows(2).all(|w| w[0].at < w[1].at && w[0].label != w[1].label));
            }
        }
    }
}
