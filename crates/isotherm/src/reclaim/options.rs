//! Values of the options of `isotherm reclaim`.

use std::time::Duration;

use isotherm_core::scheme::{Aim, Goal, Scope};
use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::schemes::TARGETS;
use crate::units;

/// The value for no limit, and for no socket.
pub const NONE: &str = "none";

/// A quota of time in each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeQuota {
    /// none: no limit
    pub time: Option<Duration>,
    /// length of a window
    pub window: Duration,
}

/// Maximum number of bytes in each window; none: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeQuota(pub Option<u64>);

/// The watermarks high, mid and low, in shares of 10,000; none: always act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkOption(pub Option<[u32; 3]>);

/// A goal, without the scope that it applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoalOption {
    /// refaulted share of the working set, in ppm
    Refaults(u32),
    /// stalled time in each second
    Stalled(Duration),
}

impl GoalOption {
    /// The goal for the machine, or for the control group of the targets.
    #[must_use]
    pub fn of(self, machine: bool) -> Goal {
        let of = if machine { Scope::Machine } else { Scope::Group(TARGETS.into()) };
        match self {
            GoalOption::Refaults(ppm) => Goal::Refaults { of, ppm },
            GoalOption::Stalled(target) => Goal::Stalled { of, target },
        }
    }
}

/// A range of addresses, at multiples of the page size.
pub fn pages(text: &str) -> Result<AddrRange, String> {
    let range = units::addresses(text)?;
    let is_aligned = |addr: u64| addr.is_multiple_of(PAGE_SIZE) || addr == u64::MAX;
    if is_aligned(range.start) && is_aligned(range.end) {
        Ok(range)
    } else {
        Err(format!("{text} must begin and end at multiples of {PAGE_SIZE}, as 1000..5000 does"))
    }
}

/// `10ms/1s`, or `none`.
pub fn time_quota(text: &str) -> Result<TimeQuota, String> {
    const SECOND: Duration = Duration::from_secs(1);
    if text == NONE {
        return Ok(TimeQuota { time: None, window: SECOND });
    }
    let wrong = || format!("{text:?} is not a time in a window: write 10ms/1s, or none");
    let (time, window) = text.split_once('/').ok_or_else(wrong)?;
    let read = |text| units::duration(text).map_err(|_| wrong());
    Ok(TimeQuota { time: Some(read(time)?), window: read(window)? })
}

/// `128M`, or `none`.
pub fn quota_size(text: &str) -> Result<SizeQuota, String> {
    if text == NONE {
        return Ok(SizeQuota(None));
    }
    let size = units::size(text).map_err(|e| format!("{e}, or none"))?;
    Ok(SizeQuota(Some(size)))
}

/// `50%,40%,20%`, or `none`.
pub fn watermarks(text: &str) -> Result<WatermarkOption, String> {
    if text == NONE {
        return Ok(WatermarkOption(None));
    }
    let wrong =
        || format!("{text:?} are not watermarks: write three shares, as 50%,40%,20%, or none");
    let share = |text| units::percent(text).map(|p| (p * 100.0).round() as u32);
    let shares: Vec<u32> =
        text.split(',').map(share).collect::<Result<_, _>>().map_err(|_| wrong())?;
    shares.try_into().map(|marks| WatermarkOption(Some(marks))).map_err(|_| wrong())
}

/// `refault=0.2%` or `psi=0.1%`.
pub fn goal(text: &str) -> Result<GoalOption, String> {
    let wrong = || format!("{text:?} is no goal: write refault=0.2% or psi=0.1%");
    let (what, share) = text.split_once('=').ok_or_else(wrong)?;
    let share = units::percent(share).map_err(|_| wrong())?;
    match what {
        "refault" => Ok(GoalOption::Refaults((share * 10_000.0).round() as u32)),
        "psi" => Ok(GoalOption::Stalled(Duration::from_secs_f64(share / 100.0))),
        _ => Err(wrong()),
    }
}

/// `refault 0.2%`, also with `/min` behind it, or `save 30%`.
pub fn aim(text: &str) -> Result<Aim, String> {
    let wrong = || format!("{text:?} is no objective: write \"refault 0.2%\" or \"save 30%\"");
    let (what, share) = text.split_once([' ', '=']).ok_or_else(wrong)?;
    let of = |share| units::percent(share).map_err(|_| wrong());
    match what {
        "refault" => {
            let share = share.strip_suffix("/min").unwrap_or(share);
            Ok(Aim::Refaults((of(share)? * 10_000.0).round() as u32))
        }
        "save" => Ok(Aim::Save((of(share)? * 100.0).round() as u32)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_spellings_are_accepted() {
        let [ms, second] = [Duration::from_millis(10), Duration::from_secs(1)];
        assert_eq!(time_quota("10ms/1s"), Ok(TimeQuota { time: Some(ms), window: second }));
        assert_eq!(time_quota("none").unwrap().time, None);
        assert_eq!(quota_size("128M"), Ok(SizeQuota(Some(128 << 20))));
        assert_eq!(watermarks("50%,40%,20%"), Ok(WatermarkOption(Some([5000, 4000, 2000]))));
        assert_eq!(watermarks("none"), Ok(WatermarkOption(None)));
        assert_eq!(goal("refault=0.2%"), Ok(GoalOption::Refaults(2000)));
        assert_eq!(aim("refault 0.2%/min"), Ok(Aim::Refaults(2000)));
        assert_eq!(aim("refault=0.2%"), Ok(Aim::Refaults(2000)));
        assert_eq!(aim("save 30%"), Ok(Aim::Save(3000)));
        assert_eq!(goal("psi=0.1%"), Ok(GoalOption::Stalled(Duration::from_millis(1))));
    }

    #[test]
    fn errors_show_a_valid_value() {
        for bad in ["", "10ms", "10/x", "/", "often/1s"] {
            assert!(time_quota(bad).unwrap_err().contains("10ms/1s, or none"), "{bad}");
        }
        for bad in ["0x1..0x2000", "1000..1fff", "2000..1000", "x"] {
            assert!(pages(bad).is_err(), "{bad}");
        }
        assert_eq!(pages("0x1000..").map(|r| r.start), Ok(0x1000));
        assert!(quota_size("5Q").unwrap_err().contains("or none"));
        for bad in ["", "50%", "50%,40%", "50%,40%,20%,1%", "a,b,c", "500%,40%,20%"] {
            assert!(watermarks(bad).unwrap_err().contains("50%,40%,20%"), "{bad}");
        }
        for bad in ["", "psi", "psi=", "psi=101%", "load=1%", "refault=much"] {
            assert!(goal(bad).unwrap_err().contains("refault=0.2% or psi=0.1%"), "{bad}");
        }
        for bad in ["", "save", "save all", "keep 30%", "refault 0.2%/h", "save 101%"] {
            assert!(aim(bad).unwrap_err().contains("or \"save 30%\""), "{bad}");
        }
    }
}
