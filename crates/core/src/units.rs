//! Parsing of sizes and times with units; upper and lower case are equal.

use std::time::Duration;

/// Parses a size in bytes: `4096`, `64K`, `1.5G`, `2MiB`, in powers of 1024. A fraction of a byte is dropped.
/// `None` if `text` is not a size, or exceeds 64 bits.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[number.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KI" | "KIB" => 10,
        "M" | "MB" | "MI" | "MIB" => 20,
        "G" | "GB" | "GI" | "GIB" => 30,
        "T" | "TB" | "TI" | "TIB" => 40,
        _ => return None,
    };
    let number = number.trim_end();
    let (whole, fraction) = match number.split_once('.') {
        // A number without a unit is in bytes and must be whole.
        Some(_) if shift == 0 => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (number, "0"),
    };
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    // 18 digits and 40 bits are less than 128 bits.
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 18 {
        return None;
    }
    let tenths = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = (fraction.parse::<u128>().ok()? << shift) / tenths;
    let whole = whole.parse::<u128>().ok()?.checked_mul(1 << shift)?;
    u64::try_from(whole.checked_add(part)?).ok()
}

/// Parses a time with its units: `500ms`, `5s`, `2min`, `1h 30m`. `None` if `text` is not a time.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    humantime::parse_duration(&text.to_ascii_lowercase()).ok()
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
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        let long = format!("1.{}G", "1".repeat(19));
        for bad in [
            "",
            "M",
            "1X",
            "-1",
            "+1",
            "1.5",
            "1.5B",
            ".5G",
            "1.G",
            "1.2.3G",
            "1e3",
            "1,5G",
            "KiB",
            "16777216T",
            "99999999999999999999999999999999999999999T",
            "1.5Q",
            "NaN",
            &long,
        ] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn times() {
        for (text, ms) in
            [("20ms", 20), ("20MS", 20), ("5S", 5_000), ("2Min", 120_000), ("1H", 3_600_000)]
        {
            assert_eq!(parse_time(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "5", "s", "-5ms", "soon"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }
}
