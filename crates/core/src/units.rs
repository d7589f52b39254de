//! Durations and sizes in a form for people; upper and lower case are equal.

use std::time::Duration;

/// Parses `20ms`, `1s`, `5min`. A number without a unit is in seconds.
///
/// # Errors
/// A text with the correct form.
pub fn duration(text: &str) -> Result<Duration, String> {
    let help = "write a number and a unit: us, ms, s, min, h (as in 20ms)";
    if let Ok(seconds) = text.parse::<f64>() {
        let duration = Duration::try_from_secs_f64(seconds);
        return duration.map_err(|_| format!("{text} is no time that can pass; {help}"));
    }
    with_units(text).map_err(|e| format!("{e}; {help}"))
}

/// Parses a time whose numbers all have units: `500ms`, `1h 30m`.
pub(crate) fn with_units(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(&text.to_ascii_lowercase())
}

/// Parses `4096`, `64K`, `1.5G`, `2MiB` into bytes, in powers of 1024. A fraction of a byte is dropped.
///
/// # Errors
/// A text with the correct form, also if the size exceeds 64 bits.
pub fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KI" | "KIB" => 10,
        "M" | "MB" | "MI" | "MIB" => 20,
        "G" | "GB" | "GI" | "GIB" => 30,
        "T" | "TB" | "TI" | "TIB" => 40,
        _ => return Err(format!("unknown unit {unit}: write K, M, G or T, as in 64M")),
    };
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    // A number of bytes must be whole. 18 digits and 40 bits are less than 128 bits.
    let is_size = is_number(whole)
        && is_number(fraction)
        && fraction.len() <= 18
        && (shift > 0 || !number.contains('.'));
    if !is_size {
        return Err(format!("{text} is no size, as 64M and 1.5G are"));
    }
    let bytes = || {
        let tenths = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = (fraction.parse::<u128>().ok()? << shift) / tenths;
        let whole = whole.parse::<u128>().ok()?.checked_mul(1 << shift)?;
        u64::try_from(whole.checked_add(part)?).ok()
    };
    bytes().ok_or_else(|| format!("{text} is too big: the greatest is 16777215T"))
}

/// A size in the form of [`size`], in the largest unit that gives an integer.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = |&(shift, _): &(u32, &str)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let unit = units.into_iter().find(whole);
    unit.map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4096b", 4096),
            ("64k", 64 << 10),
            ("2MiB", 2 << 20),
            ("2 mib", 2 << 20),
            ("1.5G", 3 << 29),
            ("0.5t", 1 << 39),
            ("0.3K", 307),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bytes in [0, 4096, 64 << 10, 1 << 20, (1 << 30) + 4096, 3 << 40] {
            assert_eq!(size(&size_text(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn what_is_no_size() {
        let long = format!("1.{}G", "1".repeat(19));
        for bad in [
            "", "M", "-1", "+1", "1.5", "1.5B", ".5G", "1.G", "1.2.3G", "1e3", "1,5G", "KiB", &long,
        ] {
            let why = size(bad).unwrap_err();
            assert_eq!(why, format!("{bad} is no size, as 64M and 1.5G are"));
        }
        for bad in ["1X", "1.5Q", "NaN"] {
            assert!(size(bad).unwrap_err().contains("unknown unit"), "{bad}");
        }
        for bad in ["16777216T", "99999999999999999999999999999999999999999T", "16777216.5T"] {
            assert!(size(bad).unwrap_err().contains("too big"), "{bad}");
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [
            ("20ms", 20),
            ("20MS", 20),
            ("5S", 5_000),
            ("2Min", 120_000),
            ("1H", 3_600_000),
            ("1h 30m", 5_400_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
            assert_eq!(with_units(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(with_units("5").is_err());
        for bad in [
            "-1",
            "NaN",
            "inf",
            "1e99",
            "1e99s",
            "99999999999999999999s",
            "",
            "s",
            "-5ms",
            "20 parsecs",
        ] {
            assert!(duration(bad).unwrap_err().contains("as in 20ms"), "{bad}");
        }
    }
}
