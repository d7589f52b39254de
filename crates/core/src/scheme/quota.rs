//! How much a scheme may do, and how much it has done.

use std::time::Duration;

use super::SchemeError;
use super::goal::{Goal, Tuner};
use super::metrics::Metrics;
use super::priority::Weights;
use super::queue::LEAST_TIME;
use crate::act::Budget;
use crate::range::PAGE_SIZE;
use crate::time::Nanos;

/// What a scheme may do within a window of time. Time, bytes and goals make one bound in bytes, the
/// lowest of them. None given: no bound. A bound of zero: it never acts.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// for acting
    pub time: Option<Duration>,
    /// to act on
    pub bytes: Option<u64>,
    /// length of a window
    pub reset: Duration,
    /// move the bound within the other two
    pub goals: Vec<Goal>,
    /// what comes first
    pub weights: Weights,
}

impl Default for Quota {
    /// No bound, nothing comes first; windows of a second.
    fn default() -> Self {
        let reset = Duration::from_secs(1);
        Quota { time: None, bytes: None, reset, goals: Vec::new(), weights: Weights::default() }
    }
}

const MAX_GOALS: usize = 16;
const RESET: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(24 * 3600);

impl Quota {
    fn is_bounded(&self) -> bool {
        self.time.is_some() || self.bytes.is_some() || !self.goals.is_empty()
    }

    /// `unit`: the least bytes that the action can be done to.
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

/// What is taken for the speed of an action before it was measured, in bytes a millisecond: the
/// kernel's first guess.
const FIRST_GUESS: u64 = PAGE_SIZE * 1024;
/// The first guess may be far too high: so small a part of a time quota is tried first.
const TRIAL: u64 = 16;
/// Acting at once, at most, whatever the quota.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// What was done in a window, and what remains.
#[derive(Debug, Clone, Default)]
pub(super) struct Charge {
    began: Option<Nanos>,
    bytes: u64,
    time: Duration,
    /// time of this turn
    turn: Duration,
    /// of windows that are over, for the speed
    past_bytes: u64,
    past_time: Duration,
    /// gone over in this window, whatever came of it: what the time went to
    gone_over: u64,
    /// in bytes, by bytes and goals
    limit: u64,
    /// in bytes, by time as well, at the speed of when the window began
    bound: u64,
    tuner: Tuner,
    /// windows that ended with nothing left
    pub exceeded: u64,
    /// windows that began
    pub windows: u64,
}

impl Charge {
    /// Begins a turn, and a window if one is due.
    pub fn begin(&mut self, quota: &Quota, unit: u64, now: Nanos, metrics: &Metrics) {
        self.turn = Duration::ZERO;
        if self.began.is_some_and(|began| now.since(began) < quota.reset) {
            return;
        }
        let used = self.bytes;
        if self.began.is_some() && quota.is_bounded() && self.is_full(quota, unit) {
            self.exceeded += 1;
        }
        self.began = Some(now);
        self.windows += 1;
        self.forget(quota);
        let goal = match &quota.goals[..] {
            [] => u64::MAX,
            goals => self.tuner.tune(goals, unit, now, metrics, used),
        };
        self.set_bound(quota, unit, goal);
    }

    /// Takes over a quota that was changed: within this window, what was done counts. Goals are asked
    /// with the next one; until then they let no more be done than was allowed before.
    pub fn change(&mut self, quota: &Quota, unit: u64) {
        let goal = match quota.goals.is_empty() {
            true => u64::MAX,
            false => self.bound.min(self.tuner.bytes()),
        };
        self.set_bound(quota, unit, goal);
    }

    /// The window becomes the past. Of that, what is long over counts ever less.
    fn forget(&mut self, quota: &Quota) {
        self.past_bytes += self.gone_over;
        self.past_time += self.time;
        if self.past_time > 8 * quota.time.unwrap_or(LONGEST_TURN) {
            self.past_bytes /= 2;
            self.past_time /= 2;
        }
        (self.bytes, self.gone_over, self.time) = (0, 0, Duration::ZERO);
    }

    /// As `damos_set_effective_quota`: goals, time at the speed measured, bytes; the lowest.
    ///
    /// However slow it was, there is time for a unit, or else it would never be found to be faster.
    fn set_bound(&mut self, quota: &Quota, unit: u64, goal: u64) {
        let bytes = |time: Duration| match time.is_zero() {
            true => 0,
            false => self.bytes_in(time).max(unit),
        };
        let in_time = quota.time.map_or(u64::MAX, bytes);
        self.limit = goal.min(quota.bytes.unwrap_or(u64::MAX));
        self.bound = in_time.min(self.limit);
    }

    /// What can be done in `time`, at the speed so far.
    fn bytes_in(&self, time: Duration) -> u64 {
        let (bytes, ns) =
            (self.past_bytes + self.gone_over, (self.past_time + self.time).as_nanos());
        let all = match ns {
            0 => time.as_nanos() * u128::from(FIRST_GUESS) / 1_000_000,
            ns => time.as_nanos() * u128::from(bytes) / ns,
        };
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Bytes in a window, as in force.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// What is left for a batch, in whole units; no bytes if the window is full, or the turn over. A
    /// sixteenth of the time is kept back, since each work may take a step longer than it is to.
    pub fn left(&self, quota: &Quota, unit: u64) -> Budget {
        let time = quota.time.map_or(Duration::MAX, |time| time.saturating_sub(self.time));
        let time = time - time / 16;
        let time = time.min(LONGEST_TURN.saturating_sub(self.turn));
        let mut bytes = self.room(quota, unit);
        if quota.time.is_some() && self.past_time + self.time == Duration::ZERO {
            bytes = bytes.min((self.bound / TRIAL).max(unit));
        }
        Budget { bytes: if time.is_zero() { 0 } else { bytes - bytes % unit }, time }
    }

    /// Bytes that may still be done in this window; of a time quota, as many as there is time for at the
    /// speed by now, which may be higher than when the window began.
    fn room(&self, quota: &Quota, unit: u64) -> u64 {
        let bytes = self.limit.saturating_sub(self.bytes);
        match quota.time {
            Some(_) if self.time.is_zero() => self.bound.saturating_sub(self.bytes),
            // What is left at last is not worth a work, which may take a step longer than it is to.
            Some(time) if self.time >= time.saturating_sub(LEAST_TIME.max(time / 50)) => 0,
            Some(time) => {
                let fits = self.bytes_in(time - self.time);
                if fits < unit { 0 } else { bytes.min(fits) }
            }
            None => bytes,
        }
    }

    /// Whether nothing more may be done in this window.
    pub fn is_full(&self, quota: &Quota, unit: u64) -> bool {
        self.room(quota, unit) < unit
    }

    /// From when on something may be done: now, or with the next window.
    pub fn next(&self, quota: &Quota, unit: u64) -> Nanos {
        match self.began {
            Some(began) if self.is_full(quota, unit) => began + quota.reset,
            began => began.unwrap_or_default(),
        }
    }

    /// Counts what was done: `bytes` of it are charged.
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
