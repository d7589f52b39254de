//! Quotas: how much a scheme may do, and how much it has done.

use std::time::Duration;

use super::error::SchemeError;
use super::goal::{Goal, Tuner};
use super::metrics::Metrics;
use super::priority::Weights;
use crate::act::Budget;
use crate::range::PAGE_SIZE;
use crate::time::Nanos;

/// The limits of a scheme within a window of time. Time, bytes and goals each give a limit in bytes; the
/// lowest applies. Without any of them, there is no limit. With a limit of zero, the scheme never acts.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// maximum time spent acting
    pub time: Option<Duration>,
    /// maximum number of bytes to act on
    pub bytes: Option<u64>,
    /// length of a window
    pub reset: Duration,
    /// goals that adjust the limit within the other two
    pub goals: Vec<Goal>,
    /// weights of the priority
    pub weights: Weights,
}

impl Default for Quota {
    /// No limit, no priority; windows of one second.
    fn default() -> Self {
        let reset = Duration::from_secs(1);
        Quota { time: None, bytes: None, reset, goals: Vec::new(), weights: Weights::default() }
    }
}

/// Minimum time for each work, so that it can make progress: a short remaining time gives fewer works.
pub(super) const MIN_WORK_TIME: Duration = Duration::from_micros(500);
const MAX_GOALS: usize = 16;
const RESET: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(24 * 3600);

impl Quota {
    fn is_bounded(&self) -> bool {
        self.time.is_some() || self.bytes.is_some() || !self.goals.is_empty()
    }

    /// Checks the quota. `unit` is the least number of bytes that the action can affect.
    pub(super) fn check(&self, unit: u64) -> Result<(), SchemeError> {
        if !RESET.contains(&self.reset) {
            return Err(SchemeError::Reset(self.reset));
        }
        if let Some(time) = self.time.filter(|time| *time > self.reset) {
            return Err(SchemeError::TimeQuota { time, reset: self.reset });
        }
        if let Some(bytes) = self.bytes.filter(|bytes| (1..unit).contains(bytes)) {
            return Err(SchemeError::SmallQuota { bytes, unit });
        }
        if self.goals.len() > MAX_GOALS {
            return Err(SchemeError::TooMany { what: "goals", limit: MAX_GOALS });
        }
        self.goals.iter().try_for_each(Goal::check)
    }
}

/// The presumed speed of an action before it is measured, in bytes per millisecond: the kernel's initial
/// value.
const FIRST_GUESS: u64 = PAGE_SIZE * 1024;
/// The presumed speed may be far too high: the first trial uses only this fraction (one sixteenth) of a time
/// quota.
const TRIAL: u64 = 16;
/// Maximum time of one turn, regardless of the quota.
const MAX_TURN: Duration = Duration::from_secs(1);

/// The consumption of a window.
#[derive(Debug, Clone, Default)]
pub(super) struct Charge {
    began: Option<Nanos>,
    bytes: u64,
    time: Duration,
    /// time used in this turn
    turn: Duration,
    /// bytes of earlier windows, to compute the speed
    past_bytes: u64,
    past_time: Duration,
    /// bytes processed in this window, with any result: this is the work that the time was spent on
    gone_over: u64,
    /// limit in bytes, from goals
    goal: u64,
    /// limit in bytes, from bytes and goals
    limit: u64,
    /// limit in bytes, also from time at the speed measured when the window began
    bound: u64,
    tuner: Tuner,
    /// number of windows that ended with the quota used up
    pub exceeded: u64,
    /// number of windows that began
    pub windows: u64,
}

impl Charge {
    /// Whether the next turn begins a new window.
    pub fn is_over(&self, quota: &Quota, now: Nanos) -> bool {
        self.began.is_none_or(|began| now.since(began) >= quota.reset)
    }

    /// Begins a turn, and a new window if one is due.
    ///
    /// `most` is a further limit of the bytes from now on.
    pub fn begin(&mut self, quota: &Quota, unit: u64, now: Nanos, metrics: &Metrics, most: u64) {
        self.turn = Duration::ZERO;
        if !self.is_over(quota, now) {
            if most < u64::MAX {
                self.set_bound(quota, unit, self.goal.min(self.bytes.saturating_add(most)));
            }
            return;
        }
        let used = self.bytes;
        // A reached goal allows no bytes; that is no exhausted quota.
        let allowed = self.began.is_some() && self.bound >= unit;
        if allowed && quota.is_bounded() && self.is_full(quota, unit) {
            self.exceeded += 1;
        }
        self.began = Some(now);
        self.windows += 1;
        self.forget(quota);
        self.goal = match &quota.goals[..] {
            [] => u64::MAX,
            goals => self.tuner.tune(goals, unit, now, metrics, used),
        };
        self.set_bound(quota, unit, self.goal.min(most));
    }

    /// Applies a changed quota. Consumption in the current window still counts. Goals are evaluated with the
    /// next window; until then they do not allow more than before.
    pub fn change(&mut self, quota: &Quota, unit: u64) {
        self.goal = match quota.goals.is_empty() {
            true => u64::MAX,
            false => self.bound.min(self.tuner.bytes()),
        };
        self.set_bound(quota, unit, self.goal);
    }

    /// Adds the window to the history, in which old windows have ever less weight.
    fn forget(&mut self, quota: &Quota) {
        self.past_bytes = self.past_bytes.saturating_add(self.gone_over);
        self.past_time = self.past_time.saturating_add(self.time);
        if self.past_time > 8 * quota.time.unwrap_or(MAX_TURN) {
            self.past_bytes /= 2;
            self.past_time /= 2;
        }
        (self.bytes, self.gone_over, self.time) = (0, 0, Duration::ZERO);
    }

    /// Sets the limit as `damos_set_effective_quota` does: the lowest of goals, time at the measured speed,
    /// and bytes.
    ///
    /// However slow the action was, the limit allows one unit: otherwise an increase in speed would never be
    /// measured.
    fn set_bound(&mut self, quota: &Quota, unit: u64, goal: u64) {
        let bytes = |time: Duration| match time.is_zero() {
            true => 0,
            false => self.bytes_in(time).max(unit),
        };
        let in_time = quota.time.map_or(u64::MAX, bytes);
        self.limit = goal.min(quota.bytes.unwrap_or(u64::MAX));
        self.bound = in_time.min(self.limit);
    }

    /// The bytes that the action can process in `time` at the measured speed.
    fn bytes_in(&self, time: Duration) -> u64 {
        let bytes = self.past_bytes.saturating_add(self.gone_over);
        let ns = self.past_time.saturating_add(self.time).as_nanos();
        let all = match ns {
            0 => time.as_nanos() * u128::from(FIRST_GUESS) / 1_000_000,
            ns => time.as_nanos() * u128::from(bytes) / ns,
        };
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// The limit of the window, in bytes.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The remaining budget for a batch, in whole units; no bytes if the quota is used up or the turn is
    /// over. A sixteenth of the time is reserved, because each work may overrun by one step.
    pub fn left(&self, quota: &Quota, unit: u64) -> Budget {
        let time = quota.time.map_or(Duration::MAX, |time| time.saturating_sub(self.time));
        let time = time - time / 16;
        let time = time.min(MAX_TURN.saturating_sub(self.turn));
        let mut bytes = self.room(quota, unit);
        if quota.time.is_some() && self.past_time.is_zero() && self.time.is_zero() {
            bytes = bytes.min((self.bound / TRIAL).max(unit));
        }
        Budget { bytes: if time.is_zero() { 0 } else { bytes - bytes % unit }, time }
    }

    /// The bytes that may still be used in this window. With a time quota, they follow from the remaining
    /// time at the present speed, which may be higher than when the window began.
    fn room(&self, quota: &Quota, unit: u64) -> u64 {
        let bytes = self.limit.saturating_sub(self.bytes);
        match quota.time {
            Some(_) if self.time.is_zero() => self.bound.saturating_sub(self.bytes),
            // The last bit of time is not sufficient for a work, which may overrun by one step.
            Some(time) if self.time >= time.saturating_sub(MIN_WORK_TIME.max(time / 50)) => 0,
            Some(time) => {
                let fits = self.bytes_in(time - self.time);
                if fits < unit { 0 } else { bytes.min(fits) }
            }
            None => bytes,
        }
    }

    /// Whether the quota of this window is used up.
    pub fn is_full(&self, quota: &Quota, unit: u64) -> bool {
        self.room(quota, unit) < unit
    }

    /// The earliest time of the next action: now, or the begin of the next window.
    pub fn next(&self, quota: &Quota, unit: u64) -> Nanos {
        match self.began {
            Some(began) if self.is_full(quota, unit) => began + quota.reset,
            began => began.unwrap_or_default(),
        }
    }

    /// Adds the result of an action: `bytes` are charged, and `gone_over` were processed.
    pub fn add(&mut self, bytes: u64, gone_over: u64, took: Duration) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.gone_over = self.gone_over.saturating_add(gone_over);
        self.time = self.time.saturating_add(took);
        self.turn = self.turn.saturating_add(took);
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
