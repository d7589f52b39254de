//! Values of the options of `isotherm whatif`.

use std::time::Duration;

use isotherm_sim::whatif::Tier;

use crate::units;

/// Tiers, and the text that they were given as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierList {
    /// the tiers, the fastest first
    pub tiers: Vec<Tier>,
    /// the text
    pub text: String,
}

/// `64G:80ns,256G:250ns`.
pub fn tiers(text: &str) -> Result<TierList, String> {
    let tier = |part: &str| {
        let wrong = || format!("{part:?} is no tier: write SIZE:TIME, as 64G:80ns");
        let (size, latency) = part.trim().split_once(':').ok_or_else(wrong)?;
        let bytes = units::size(size).map_err(|e| format!("{}; {e}", wrong()))?;
        let latency = units::duration(latency).map_err(|e| format!("{}; {e}", wrong()))?;
        if bytes == 0 || latency.is_zero() {
            return Err(wrong());
        }
        Ok(Tier { bytes, latency })
    };
    let tiers = text.split(',').map(tier).collect::<Result<_, _>>()?;
    Ok(TierList { tiers, text: text.to_owned() })
}

/// Values of one option.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sweep {
    /// minimum ages
    MinAge(Vec<Duration>),
    /// memory limits, in bytes
    Limit(Vec<u64>),
}

/// A size that is not zero.
pub fn limit(text: &str) -> Result<u64, String> {
    match units::size(text)? {
        0 => Err("a limit of 0 bytes leaves no memory: give at least a page".to_owned()),
        size => Ok(size),
    }
}

/// Number of settings of a sweep.
const SWEEP_STEPS: u32 = 13;

/// `min-age=1s..10m` or `limit=1G..8G`.
pub fn sweep(text: &str) -> Result<Sweep, String> {
    let wrong = || {
        format!(
            "{text:?} is no sweep: write min-age=FROM..TO or limit=FROM..TO, as min-age=5s..10min"
        )
    };
    let (what, range) = text.split_once('=').ok_or_else(wrong)?;
    let (from, to) = range.split_once("..").ok_or_else(wrong)?;
    match what {
        "min-age" => {
            let value = |text: &str| units::duration(text).map(|d| d.as_secs_f64());
            let values = steps(value(from)?, value(to)?).ok_or_else(wrong)?;
            let short =
                |s: f64| Duration::try_from_secs_f64(three_digits(s)).unwrap_or(Duration::MAX);
            Ok(Sweep::MinAge(values.into_iter().map(short).collect()))
        }
        "limit" => {
            let value = |text: &str| units::size(text).map(|n| n as f64);
            let values = steps(value(from)?, value(to)?).ok_or_else(wrong)?;
            Ok(Sweep::Limit(values.into_iter().map(|n| n.round() as u64).collect()))
        }
        _ => Err(wrong()),
    }
}

/// Values from one to the other in equal ratios; `None` if there is no way.
fn steps(from: f64, to: f64) -> Option<Vec<f64>> {
    let last = f64::from(SWEEP_STEPS - 1);
    let value = |i: u32| from * (to / from).powf(f64::from(i) / last);
    (from > 0.0 && from < to).then(|| (0..SWEEP_STEPS).map(value).collect())
}

fn three_digits(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 2.0);
    (value / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_sizes_and_times() {
        let list = tiers("64G:80ns,1.5G:250ns").unwrap();
        let ns = Duration::from_nanos;
        let first = Tier { bytes: 64 << 30, latency: ns(80) };
        assert_eq!(list.tiers, [first, Tier { bytes: 3 << 29, latency: ns(250) }]);
        for bad in ["", "64G", "64G:", ":80ns", "64G:80parsecs", "0:80ns", "64G:0ns", "64G:80ns,"] {
            assert!(tiers(bad).unwrap_err().contains("64G:80ns"), "{bad}");
        }
    }

    #[test]
    fn a_sweep_goes_from_one_value_to_the_other() {
        let Ok(Sweep::MinAge(ages)) = sweep("min-age=1s..10m") else { panic!() };
        assert_eq!(ages.len(), 13);
        assert_eq!((ages[0], ages[12]), (Duration::from_secs(1), Duration::from_secs(600)));
        assert!(ages.is_sorted() && ages[1] == Duration::from_millis(1700), "{ages:?}");
        let Ok(Sweep::MinAge(ages)) = sweep("min-age=100us..10ms") else { panic!() };
        assert!(ages.is_sorted_by(|a, b| a < b), "{ages:?}");
        assert_eq!((ages[0], ages[12]), (Duration::from_micros(100), Duration::from_millis(10)));
        let Ok(Sweep::Limit(limits)) = sweep("limit=1G..8G") else { panic!() };
        assert_eq!((limits[0], limits[4], limits[12]), (1 << 30, 2 << 30, 8 << 30));
        for bad in ["", "min-age", "min-age=1s", "min-age=9s..1s", "age=1s..9s", "limit=0..1G"] {
            assert!(sweep(bad).unwrap_err().contains("min-age=5s..10min"), "{bad}");
        }
        assert!(sweep("min-age=1s..often").is_err());
        assert_eq!((limit("0").is_err(), limit("4K")), (true, Ok(4096)));
    }
}
