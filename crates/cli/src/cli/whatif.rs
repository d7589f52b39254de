//! Options of `whatif`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm::units;
use isotherm_sim::whatif::Tier;

use super::DEFAULT_RECORD;
use super::reclaim::{Bytes, Pace, pace, quota_size};
use super::report::{Input, Part};

/// Options of `whatif`.
#[derive(Debug, Args)]
pub struct WhatIf {
    /// Record to play; - is standard input
    #[arg(value_name = "RECORD", default_value = DEFAULT_RECORD)]
    pub record: PathBuf,
    /// Play the schemes of this file, as isotherm run does; each file is a setting. May be given several times, as
    /// all options of settings
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub scheme: Vec<PathBuf>,
    /// Page out memory that was not touched for this long, as isotherm reclaim does
    /// [default: 120s, if there is no other setting]
    #[arg(long, value_name = "TIME", value_parser = units::duration, help_heading = "Settings")]
    pub min_age: Vec<Duration>,
    /// Time for paging out in each window of time, with each --min-age; none: no limit
    #[arg(
        long, value_name = "TIME/WINDOW", default_value = "10ms/1s", value_parser = pace,
        help_heading = "Settings"
    )]
    pub quota: Vec<Pace>,
    /// Maximum number of bytes to page out in each window of --quota; none: no limit
    #[arg(
        long, value_name = "SIZE", default_value = "128M", value_parser = quota_size,
        help_heading = "Settings"
    )]
    pub quota_size: Bytes,
    /// With --min-age, decide page by page
    #[arg(long, help_heading = "Settings")]
    pub pages: bool,
    /// Limit the memory: page out what was untouched for the longest time while there is more
    #[arg(long, value_name = "SIZE", value_parser = limit, help_heading = "Settings")]
    pub limit: Vec<u64>,
    /// Tiers of memory, the fastest first, each with its size and the time of an access: what was untouched for the
    /// longest time moves down
    #[arg(
        long, value_name = "SIZE:TIME,...", value_parser = tiers, help_heading = "Settings"
    )]
    pub tiers: Vec<TierList>,
    /// Play this many settings from one value to the other, in equal ratios: min-age=1s..10m or limit=1G..8G
    #[arg(
        long, value_name = "WHAT=FROM..TO", value_parser = sweep, help_heading = "Settings"
    )]
    pub sweep: Vec<Sweep>,
    /// Memory of the machine, for schemes that go by free memory
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub memory: Option<u64>,
    /// Time for which the program waits until a page is back: about 20us from swap in compressed memory, 100us from
    /// a fast disk
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = units::duration)]
    pub fault: Duration,
    /// CPU time for paging out a page; the default was measured with swap in compressed memory
    #[arg(long, value_name = "TIME", default_value = "4220ns", value_parser = units::duration)]
    pub page_out: Duration,
    /// Leave out damaged parts, instead of ending there
    #[arg(long)]
    pub skip_damaged: bool,
    /// Play only this part of the recording, counted from its beginning (10s..20s)
    #[arg(long, value_name = "FROM..TO", value_parser = units::times)]
    pub time: Option<Range<Duration>>,
    /// Play only this target: its pid, a part of its command line, or its number in the record; may be given several
    /// times
    #[arg(long, value_name = "PID|NAME|NUMBER")]
    pub target: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Picture to write, PNG or SVG by its name; - writes a PNG to standard output, unless that is
    /// a terminal [default: print text]
    #[arg(short, long, value_name = "FILE.png|FILE.svg|-")]
    pub output: Option<PathBuf>,
}

impl WhatIf {
    /// The part of the record that is played.
    pub fn part(&self) -> Part {
        Part {
            input: Input { path: self.record.clone(), skip_damaged: self.skip_damaged },
            time: self.time.clone(),
            target: self.target.clone(),
        }
    }
}

/// Tiers, and the text that they were given as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierList {
    pub tiers: Vec<Tier>,
    pub text: String,
}

/// `64G:80ns,256G:250ns`.
fn tiers(text: &str) -> Result<TierList, String> {
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
pub enum Sweep {
    MinAge(Vec<Duration>),
    Limit(Vec<u64>),
}

fn limit(text: &str) -> Result<u64, String> {
    match units::size(text)? {
        0 => Err("a limit of 0 bytes leaves no memory: give at least a page".to_owned()),
        size => Ok(size),
    }
}

/// Number of settings of a sweep.
const SWEEP: u32 = 13;

/// `min-age=1s..10m` or `limit=1G..8G`.
fn sweep(text: &str) -> Result<Sweep, String> {
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
            let short = |s: f64| Duration::from_millis((three_digits(s) * 1e3).round() as u64);
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
    let last = f64::from(SWEEP - 1);
    let value = |i: u32| from * (to / from).powf(f64::from(i) / last);
    (from > 0.0 && from < to).then(|| (0..SWEEP).map(value).collect())
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
        let Ok(Sweep::Limit(limits)) = sweep("limit=1G..8G") else { panic!() };
        assert_eq!((limits[0], limits[4], limits[12]), (1 << 30, 2 << 30, 8 << 30));
        for bad in ["", "min-age", "min-age=1s", "min-age=9s..1s", "age=1s..9s", "limit=0..1G"] {
            assert!(sweep(bad).unwrap_err().contains("min-age=5s..10min"), "{bad}");
        }
        assert!(sweep("min-age=1s..often").is_err());
        assert_eq!((limit("0").is_err(), limit("4K")), (true, Ok(4096)));
    }
}
