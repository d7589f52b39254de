//! Values in the form that options accept.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::Duration;

pub use isotherm_core::units::{duration, size};
use isotherm_core::{AddrRange, IntervalsGoal, MonitorKind};
use isotherm_linux::Way;

use crate::watch::LookBy;

/// The name of a way to look, `damon`, or `auto`.
pub fn way(text: &str) -> Result<LookBy, String> {
    match text {
        "auto" => Ok(LookBy::Auto),
        "damon" => Ok(LookBy::Damon),
        _ => Way::find(text).map(LookBy::Way).map_err(|e| format!("{e}, damon or auto")),
    }
}

/// The number of a process. Whether there is such a process shows later.
pub fn pid(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| {
        "a PID is a number, as pidof prints it; --comm NAME selects processes by name".to_owned()
    })
}

/// The two parts around `..`.
fn halves(text: &str) -> Result<(&str, &str), String> {
    text.split_once("..").ok_or_else(|| format!("{text} is no range: write FROM..TO"))
}

/// `100..1000`.
pub fn regions(text: &str) -> Result<(u32, u32), String> {
    let (min, max) = halves(text)?;
    let number = |s: &str| s.parse().map_err(|_| format!("{s:?} is no number of regions"));
    Ok((number(min)?, number(max)?))
}

/// Two values around `..`; an omitted end has the value of that end of `all`.
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

/// `10s..20s`; either end may be omitted.
pub fn times(text: &str) -> Result<Range<Duration>, String> {
    range(text, Duration::ZERO..Duration::MAX, duration)
}

/// `64K..1M`; either end may be omitted.
pub fn sizes(text: &str) -> Result<Range<u64>, String> {
    range(text, 0..u64::MAX, size)
}

/// `1..10` in Hz; either end may be omitted.
pub fn rates(text: &str) -> Result<Range<f64>, String> {
    let value = |s: &str| hz(s).filter(|hz| *hz >= 0.0).ok_or(format!("{s:?} is no number of Hz"));
    range(text, 0.0..f64::INFINITY, value)
}

/// `0x7f0000000000..0x7f0010000000`; either end may be omitted.
pub fn addresses(text: &str) -> Result<AddrRange, String> {
    let address = |s: &str| {
        let hex = s.trim_start_matches("0x");
        u64::from_str_radix(hex, 16).map_err(|_| format!("{s:?} is no hexadecimal address"))
    };
    range(text, 0..u64::MAX, address).map(|r| AddrRange::new(r.start, r.end))
}

fn hz(text: &str) -> Option<f64> {
    let at = text.len().saturating_sub(2);
    let number = match text.split_at_checked(at) {
        Some((number, unit)) if unit.eq_ignore_ascii_case("hz") => number,
        _ => text,
    };
    number.trim().parse().ok()
}

/// A percentage from 0 to 100.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse().ok();
    let inside = number.filter(|n| (0.0..=100.0).contains(n));
    inside.ok_or(format!("{text:?} is no number from 0 to 100"))
}

/// `1%`: a share of one CPU, in millionths.
pub fn budget(text: &str) -> Result<u32, String> {
    Ok((percent(text)? * 10_000.0).round() as u32)
}

/// A time, or `auto`, which is zero.
pub fn interval(text: &str) -> Result<Duration, String> {
    match text {
        "auto" => Ok(Duration::ZERO),
        _ => duration(text).and_then(|d| {
            if d.is_zero() { Err("write auto, or a time as 1s".into()) } else { Ok(d) }
        }),
    }
}

/// A time of at least `least`; `why` is the error for a shorter one.
pub fn at_least(
    least: Duration,
    why: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| match duration(text)? {
        time if time < least => {
            Err(format!("{why}: write {} or more", humantime::format_duration(least)))
        }
        time => Ok(time),
    }
}

/// The name of a kind of monitor.
pub fn monitor(text: &str) -> Result<MonitorKind, String> {
    let names = MonitorKind::ALL.map(MonitorKind::name).join(", ");
    let kind = MonitorKind::ALL.into_iter().find(|kind| kind.name() == text);
    kind.ok_or_else(|| format!("there is no such monitor: write one of {names}"))
}

/// `4%,3,5ms..10s`: the share of accesses, the number of aggregation intervals, and the bounds of the sampling
/// interval.
pub fn intervals_goal(text: &str) -> Result<IntervalsGoal, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let [share, aggrs, bounds] = parts[..] else {
        return Err(format!("{text:?} is no goal: write SHARE,N,MIN..MAX, as in 4%,3,5ms..10s"));
    };
    let (min, max) = halves(bounds)?;
    let goal = IntervalsGoal {
        access_bp: (percent(share)? * 100.0).round() as u32,
        aggrs: aggrs.trim().parse().map_err(|_| format!("{aggrs:?} is no number of intervals"))?,
        min_sample: duration(min)?,
        max_sample: duration(max)?,
    };
    if goal.access_bp == 0 || goal.aggrs == 0 || goal.min_sample > goal.max_sample {
        return Err("share and intervals must be above 0, and MIN not above MAX".into());
    }
    Ok(goal)
}

/// A weight of interleaving.
fn weight(text: &str) -> Result<u8, String> {
    let number = text.trim().parse().ok().filter(|&w: &u8| w > 0);
    number.ok_or_else(|| format!("{text:?} is no weight: they are whole numbers from 1 to 255"))
}

/// Weights of nodes that another option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightList(pub Vec<u8>);

/// `9:1`.
pub fn weights(text: &str) -> Result<WeightList, String> {
    text.split(':').map(weight).collect::<Result<_, _>>().map(WeightList)
}

/// The new values of the machine's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetTo {
    /// these weights
    Weights(BTreeMap<u32, u8>),
    /// the weights that the kernel computes
    Auto,
    /// no weights: the kernel's default
    Default,
    /// the previous weights
    Restore,
}

/// `0=9,1=1`, or one of the words.
pub fn set_to(text: &str) -> Result<SetTo, String> {
    match text {
        "auto" => return Ok(SetTo::Auto),
        "default" => return Ok(SetTo::Default),
        "restore" => return Ok(SetTo::Restore),
        _ => {}
    }
    let mut weights = BTreeMap::new();
    for pair in text.split(',') {
        let (node, of) = pair.split_once('=').ok_or_else(|| {
            format!("{pair:?} is no weight of a node: write 0=9, auto, default or restore")
        })?;
        let node = node.trim().parse().map_err(|_| format!("{node:?} is no number of a node"))?;
        if weights.insert(node, weight(of)?).is_some() {
            return Err(format!("node {node} is named twice: name it once"));
        }
    }
    Ok(SetTo::Weights(weights))
}

/// A number above zero, in Hz.
pub fn rate(text: &str) -> Result<f64, String> {
    let number = hz(text).ok_or("no number of Hz; write one, as in 10")?;
    if number > 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err("it must be above 0 and finite, as in 10".into())
    }
}

/// The name of a host, or its address, as a browser sends it.
pub fn host(text: &str) -> Result<String, String> {
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let may_be_named = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            !text.is_empty() && text.chars().all(may_be_named)
        }
    };
    let why = "give only a name or an address, without a port, a scheme or a path: box.example or [2001:db8::1]";
    is_host.then(|| text.to_owned()).ok_or_else(|| why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_no_port() {
        for good in ["box.example", "10.0.0.1", "[2001:db8::1]", "xn--bcher-kva.example"] {
            assert_eq!(host(good).as_deref(), Ok(good));
        }
        for bad in
            ["", "box:80", "[::1]:80", "::1", "https://box", "box/", "a b", "[box]", "b\u{fc}cher"]
        {
            assert!(host(bad).unwrap_err().contains("without a port"), "{bad}");
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
        assert!(addresses("0x10000000000000000..").is_err());
        assert_eq!(sizes("1M.."), Ok(1 << 20..u64::MAX));
        assert_eq!(rates("0..10Hz"), Ok(0.0..10.0));
        for bad in ["-1..", "NaN..", "..NaN", "2..1", "x.."] {
            assert!(rates(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_rate() {
        assert_eq!(rate("10"), Ok(10.0));
        assert_eq!((rate("0.5Hz"), rate("0.5 hz")), (Ok(0.5), Ok(0.5)));
        for bad in ["", "é", "Hz", "0", "-1", "NaN", "inf", "1e999", "often"] {
            assert!(rate(bad).unwrap_err().contains("as in 10"), "{bad}");
        }
    }

    #[test]
    fn a_goal_of_intervals() {
        let goal = intervals_goal("4%,3,5ms..10s").unwrap();
        assert_eq!((goal.access_bp, goal.aggrs), (400, 3));
        assert_eq!(
            goal.min_sample..goal.max_sample,
            Duration::from_millis(5)..Duration::from_secs(10)
        );
        for bad in ["4%", "4%,3", "0,3,1..2", "4,0,1..2", "4,3,2..1", "4,x,1..2", "101,3,1..2"] {
            assert!(intervals_goal(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn of_the_monitor() {
        assert_eq!(
            (budget("1%"), budget("0.5%"), budget("2.5")),
            (Ok(10_000), Ok(5_000), Ok(25_000))
        );
        assert_eq!(
            (interval("auto"), interval("2s")),
            (Ok(Duration::ZERO), Ok(Duration::from_secs(2)))
        );
        assert!(interval("0s").unwrap_err().contains("auto"));
        assert_eq!(monitor("pages"), Ok(MonitorKind::Pages));
        assert!(monitor("page").unwrap_err().contains("exposure, regions, pages"));
    }

    #[test]
    fn a_time_of_at_least_so_much() {
        let every = at_least(Duration::from_millis(2), "that is often");
        assert_eq!(every("2ms"), Ok(Duration::from_millis(2)));
        for shorter in ["0", "0s", "1999us"] {
            assert_eq!(every(shorter).unwrap_err(), "that is often: write 2ms or more");
        }
        assert!(every("often").is_err());
    }

    #[test]
    fn weights_of_nodes() {
        assert_eq!(weights("9:1"), Ok(WeightList(vec![9, 1])));
        let pairs = |pairs: &[(u32, u8)]| Ok(SetTo::Weights(pairs.iter().copied().collect()));
        assert_eq!(set_to("0=9,1=1"), pairs(&[(0, 9), (1, 1)]));
        assert_eq!(set_to("restore"), Ok(SetTo::Restore));
        for bad in ["", "0:1", "9:256", "9:-1", "9;1"] {
            assert!(weights(bad).unwrap_err().contains("1 to 255"), "{bad}");
        }
        for bad in ["0", "0=0", "0=256", "0=9,0=8", "x=1", "=", "never"] {
            assert!(set_to(bad).is_err(), "{bad}");
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
