//! Durations, sizes and ranges as people type them.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_linux::Way;
pub use isotherm_sim::workload::units::{duration, size};

use crate::cli::Look;

/// The name of a way to look, or `auto`.
pub fn way(text: &str) -> Result<Look, String> {
    if text == "auto" {
        return Ok(Look(None));
    }
    Way::find(text).map(|way| Look(Some(way))).map_err(|e| format!("{e}, or auto"))
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

/// `10s..20s`; either end may be left out.
pub fn times(text: &str) -> Result<Range<Duration>, String> {
    let (from, to) = halves(text)?;
    let from = if from.is_empty() { Duration::ZERO } else { duration(from)? };
    let to = if to.is_empty() { Duration::MAX } else { duration(to)? };
    if from >= to {
        return Err(format!("{text} is empty: its end must lie after its begin"));
    }
    Ok(from..to)
}

/// `0x7f0000000000..0x7f0010000000`; either end may be left out.
pub fn addresses(text: &str) -> Result<AddrRange, String> {
    let (from, to) = halves(text)?;
    let address = |s: &str| {
        let hex = s.trim_start_matches("0x");
        u64::from_str_radix(hex, 16).map_err(|_| format!("{s:?} is no hexadecimal address"))
    };
    let from = if from.is_empty() { 0 } else { address(from)? };
    let to = if to.is_empty() { u64::MAX } else { address(to)? };
    if from >= to {
        return Err(format!("{text} is empty: its end must lie after its begin"));
    }
    Ok(AddrRange::new(from, to))
}

/// A number above zero, in Hz.
pub fn rate(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches("Hz").trim().parse::<f64>();
    let number = number.map_err(|_| "no number of Hz; write one, as in 10")?;
    if number > 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err("it must be above 0 and finite, as in 10".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(regions("100..1000"), Ok((100, 1000)));
        assert!(regions("100").unwrap_err().contains("FROM..TO"));
        assert_eq!(times("1s..2s"), Ok(Duration::from_secs(1)..Duration::from_secs(2)));
        assert_eq!(times("..2"), Ok(Duration::ZERO..Duration::from_secs(2)));
        assert!(times("2..1").is_err());
        assert_eq!(addresses("0x1000..2000"), Ok(AddrRange::new(0x1000, 0x2000)));
        assert!(addresses("zz..").is_err());
        assert!(addresses("0x10000000000000000..").is_err());
    }

    #[test]
    fn rates() {
        assert_eq!(rate("10"), Ok(10.0));
        assert_eq!(rate("0.5Hz"), Ok(0.5));
        for bad in ["", "0", "-1", "NaN", "inf", "1e999", "often"] {
            assert!(rate(bad).unwrap_err().contains("as in 10"), "{bad}");
        }
    }
}
