//! Numbers formatted for people.

use std::time::Duration;

use isotherm_core::AddrRange;
use serde::{Serialize, Serializer};

/// Bytes in a MiB.
pub(crate) const MIB: f64 = 1_048_576.0;

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with one decimal, in the largest unit in which the number is at least 1: `300.0 MiB`.
#[must_use]
pub fn bytes(n: u64) -> String {
    let exponent = n.max(1).ilog2() / 10;
    if exponent == 0 {
        return format!("{n} B");
    }
    let value = n as f64 / (1u64 << (10 * exponent)) as f64;
    // A value that rounds to 1024.0 is written in the next unit.
    let (value, exponent) = if value < 1023.95 { (value, exponent) } else { (1.0, exponent + 1) };
    format!("{value:.1} {}", UNITS[exponent as usize % UNITS.len()])
}

/// A number of things: `1 snapshot`, `2 snapshots`.
#[must_use]
pub fn counted(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// Like [`bytes`], without a decimal that is zero: for titles.
pub(crate) fn short_bytes(n: u64) -> String {
    bytes(n).replace(".0 ", " ")
}

/// Bytes in the largest unit in which the number is at least 1, with up to three decimals: for ticks.
pub(crate) fn exact_bytes(n: u64) -> String {
    let exponent = n.max(1).ilog2() / 10;
    let value = format!("{:.3}", n as f64 / (1u64 << (10 * exponent)) as f64);
    let unit = UNITS[exponent as usize % UNITS.len()];
    format!("{} {unit}", value.trim_end_matches('0').trim_end_matches('.'))
}

/// A rate: `0.1 Hz`, `10 Hz`.
pub(crate) fn hz(rate: f64) -> String {
    format!("{} Hz", significant(rate))
}

/// A time in the largest unit that requires at most one decimal: `400 ms`, `1.5 s`, `60 s`.
#[must_use]
pub fn time(d: Duration) -> String {
    let seconds = d.as_secs_f64();
    if seconds >= 7200.0 {
        format!("{} h", significant(seconds / 3600.0))
    } else if seconds >= 120.0 {
        format!("{} min", significant(seconds / 60.0))
    } else if seconds >= 1.0 || d.is_zero() {
        format!("{} s", significant(seconds))
    } else if seconds >= 0.001 {
        format!("{} ms", significant(seconds * 1e3))
    } else {
        format!("{} us", significant(seconds * 1e6))
    }
}

/// A number with at most three significant digits, without trailing zeros.
#[must_use]
pub fn significant(value: f64) -> String {
    let digits = if value.abs() < 1e-9 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = usize::try_from(2 - digits).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A count with separated thousands: `12,345`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Addresses as hexadecimal text, because many JSON readers cannot represent all 64-bit numbers.
pub(crate) fn hex<S: Serializer>(range: &AddrRange, s: S) -> Result<S::Ok, S::Error> {
    [format!("{:#x}", range.start), format!("{:#x}", range.end)].serialize(s)
}

/// `part` of `whole` in percent; 0 if `whole` is 0.
pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_percents_are_whole_numbers() {
        for n in 0..=100 {
            assert_eq!(percent(f64::from(n), 100.0), f64::from(n));
        }
        assert_eq!(percent(1.0, 0.0), 0.0);
    }

    #[test]
    fn bytes_take_the_unit_that_leaves_one_or_more() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (64_172_851, "61.2 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(short_bytes(300 << 20), "300 MiB");
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "file")), ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn times_and_rates_are_short() {
        for (ms, text) in
            [(0, "0 s"), (400, "400 ms"), (1500, "1.5 s"), (60_000, "60 s"), (300_000, "5 min")]
        {
            assert_eq!(time(Duration::from_millis(ms)), text);
        }
        assert_eq!(time(Duration::from_secs(9000)), "2.5 h");
        assert_eq!(time(Duration::from_micros(100)), "100 us");
        assert_eq!(
            (hz(0.1), hz(10.0), hz(1234.5)),
            ("0.1 Hz".into(), "10 Hz".into(), "1234 Hz".into())
        );
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(
            (count(0), count(999), count(1_234_567)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
    }
}
