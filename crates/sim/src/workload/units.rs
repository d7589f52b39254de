//! Durations and sizes in a form for people.

use std::time::Duration;

use isotherm_core::parse_size;

/// Parses `20ms`, `1s`, `5min`, in upper or lower case. A number without a unit is in seconds.
///
/// # Errors
/// A text with the correct form.
pub fn duration(text: &str) -> Result<Duration, String> {
    let help = "write a number and a unit: us, ms, s, min, h (as in 20ms)";
    if let Ok(seconds) = text.parse::<f64>() {
        let duration = Duration::try_from_secs_f64(seconds);
        return duration.map_err(|_| format!("{text} is no time that can pass; {help}"));
    }
    humantime::parse_duration(&text.to_ascii_lowercase()).map_err(|e| format!("{e}; {help}"))
}

/// Parses `64K`, `1.5G`, `2GiB` into bytes, as [`parse_size`] does.
///
/// # Errors
/// A text with the correct form.
pub fn size(text: &str) -> Result<u64, String> {
    if let Some(bytes) = parse_size(text) {
        return Ok(bytes);
    }
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    // Distinguishes an unknown unit from a number with too many digits.
    if parse_size(&format!("1{unit}")).is_none() {
        return Err(format!("unknown unit {unit}: write K, M, G or T, as in 64M"));
    }
    let is_long = number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty();
    Err(match is_long {
        true => format!("{text} is too big: the greatest is 16777215T"),
        false => format!("{text} is no size, as 64M and 1.5G are"),
    })
}

/// A size in the form of [`size`], in the largest unit that gives an integer.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = |&(shift, _): &(u32, &str)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let unit = units.into_iter().find(whole);
    unit.map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("20MS"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("20 parsecs").unwrap_err().contains("as in 20ms"));
        for bad in ["-1", "NaN", "inf", "1e99", "1e99s", "99999999999999999999s", "", "s", "-5ms"] {
            assert!(duration(bad).unwrap_err().contains("as in 20ms"), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("17"), Ok(17));
        assert_eq!(size("1.5g"), Ok(3 << 29));
        for (bad, said) in [
            ("", "is no size"),
            ("M", "is no size"),
            ("1.5", "is no size"),
            ("1X", "unknown unit X"),
            ("99999999999T", "too big"),
        ] {
            assert!(size(bad).unwrap_err().contains(said), "{bad}");
        }
        for bytes in [0, 4096, 64 << 10, 1 << 20, (1 << 30) + 4096, 3 << 40] {
            assert_eq!(size(&size_text(bytes)), Ok(bytes));
        }
    }
}
