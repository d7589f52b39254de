//! Durations, sizes and ranges as people type them.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::AddrRange;

/// `20ms`, `1s`, `5min`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string());
    }
    let help = "write a number and a unit: us, ms, s, min, h (as in 20ms)";
    humantime::parse_duration(text).map_err(|e| format!("{e}; {help}"))
}

/// `64K`, `100M`, `2GiB`: powers of 1024; a bare number is bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("unknown unit {unit}: write K, M, G or T, as in 64M")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no size, as 64M is"))?;
    number.checked_shl(shift).filter(|n| n >> shift == number).ok_or("that is too big".into())
}

/// Two parts around `..`.
fn halves(text: &str) -> Result<(&str, &str), String> {
    text.split_once("..").ok_or_else(|| format!("{text} is no range: write FROM..TO"))
}

/// `100..1000`.
pub fn regions(text: &str) -> Result<(u32, u32), String> {
    let (min, max) = halves(text)?;
    let number = |s: &str| s.parse().map_err(|_| format!("{s:?} is no number of regions"));
    Ok((number(min)?, number(max)?))
}

/// Two values around `..`; an end that is left out is that of `all`.
fn range<T: PartialOrd>(
    text: &str,
    all: Range<T>,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<Range<T>, String> {
    let (from, to) = halves(text)?;
    let from = if from.is_empty() { all.start } else { value(from)? };
    let to = if to.is_empty() { all.end } else { value(to)? };
    if from < to {
        Ok(from..to)
    } else {
        Err(format!("{text} is empty: its end must lie after its begin"))
    }
}

/// `10s..20s`; either end may be left out.
pub fn times(text: &str) -> Result<Range<Duration>, String> {
    range(text, Duration::ZERO..Duration::MAX, duration)
}

/// `64K..1M`; either end may be left out.
pub fn sizes(text: &str) -> Result<Range<u64>, String> {
    range(text, 0..u64::MAX, size)
}

/// `1..10` in Hz; either end may be left out.
pub fn rates(text: &str) -> Result<Range<f64>, String> {
    let value = |s: &str| hz(s).filter(|hz| *hz >= 0.0).ok_or(format!("{s:?} is no number of Hz"));
    range(text, 0.0..f64::INFINITY, value)
}

/// `0x7f0000000000..0x7f0010000000`; either end may be left out.
pub fn addresses(text: &str) -> Result<AddrRange, String> {
    let address = |s: &str| {
        let hex = s.trim_start_matches("0x");
        u64::from_str_radix(hex, 16).map_err(|_| format!("{s:?} is no hexadecimal address"))
    };
    range(text, 0..u64::MAX, address).map(|r| AddrRange::new(r.start, r.end))
}

fn hz(text: &str) -> Option<f64> {
    text.trim_end_matches("Hz").trim().parse().ok()
}

/// 0 to 100.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse().ok();
    let inside = number.filter(|n| (0.0..=100.0).contains(n));
    inside.ok_or(format!("{text:?} is no number from 0 to 100"))
}

/// A number above zero, in Hz.
pub fn rate(text: &str) -> Result<f64, String> {
    let number = hz(text).ok_or("no number of Hz")?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("it must be above 0".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("20 parsecs").unwrap_err().contains("as in 20ms"));
        assert!(duration("-1").is_err());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("17"), Ok(17));
        for bad in ["", "M", "1X", "99999999999T", "1.5G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges() {
        assert_eq!(regions("100..1000"), Ok((100, 1000)));
        assert!(regions("100").unwrap_err().contains("FROM..TO"));
        assert_eq!(times("1s..2s"), Ok(Duration::from_secs(1)..Duration::from_secs(2)));
        assert_eq!(times("..2"), Ok(Duration::ZERO..Duration::from_secs(2)));
        assert!(times("2..1").is_err());
        assert_eq!(addresses("0x1000..2000"), Ok(AddrRange::new(0x1000, 0x2000)));
        assert!(addresses("zz..").is_err());
        assert_eq!(sizes("1M.."), Ok(1 << 20..u64::MAX));
        assert_eq!(rates("0..10Hz"), Ok(0.0..10.0));
        for bad in ["-1..", "NaN..", "..NaN", "2..1", "x.."] {
            assert!(rates(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn percents() {
        assert_eq!((percent("0"), percent("99.9%")), (Ok(0.0), Ok(99.9)));
        for bad in ["101", "-1", "NaN", "half"] {
            assert!(percent(bad).unwrap_err().contains("0 to 100"), "{bad}");
        }
    }
}
