//! Goals: a quota that tunes itself.

use std::sync::Arc;
use std::time::Duration;

use super::error::SchemeError;
use super::metrics::{Metrics, Scope};
use crate::range::PAGE_SIZE;
use crate::time::Nanos;

/// The goal of a quota. The scheme does more while the goal is missed, and less after it is exceeded.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    /// Time per second in which some tasks wait for memory (PSI "some").
    Stalled {
        /// the machine or the group
        of: Scope,
        /// time per second
        target: Duration,
    },
    /// Maximum of the working set that is read back from disk or swap within a minute.
    Refaults {
        /// the machine or the group
        of: Scope,
        /// parts per million of the working set: 2000 is 0.2 %
        ppm: u32,
    },
    /// Free memory of the machine, of 10,000. When it is reached, the scheme does nothing.
    Free {
        /// share
        bp: u32,
    },
    /// Resident memory. When it is reached, the scheme does nothing.
    Resident {
        /// the machine or the group
        of: Scope,
        /// the goal in bytes
        bytes: u64,
    },
    /// A metric of the user, which grows as the scheme does more.
    User {
        /// its name in [`Metrics::user`]
        name: Arc<str>,
        /// its goal
        target: f64,
    },
}

/// The score of a goal that is reached.
const SCORE_MET: u64 = 10_000;

impl Goal {
    pub(super) fn check(&self) -> Result<(), SchemeError> {
        let possible = match self {
            Goal::Stalled { target, .. } => !target.is_zero() && *target <= Duration::from_secs(1),
            Goal::Refaults { ppm, .. } => (1..=1_000_000).contains(ppm),
            Goal::Free { bp } => (1..=10_000).contains(bp),
            Goal::Resident { bytes, .. } => *bytes > 0,
            Goal::User { target, .. } => target.is_finite() && *target > 0.0,
        };
        if possible { Ok(()) } else { Err(SchemeError::Goal(format!("{self:?}"))) }
    }

    /// Whether the goal is a state, which is reached once, and not a flow, which must be maintained.
    fn is_state(&self) -> bool {
        matches!(self, Goal::Free { .. } | Goal::Resident { .. })
    }

    /// The score of the goal: 10,000 if it is reached, more if it is exceeded. `None` if the metric is not
    /// available. `before` is from the time `over` ago.
    fn score(&self, before: &Metrics, now: &Metrics, over: Duration) -> Option<u64> {
        let share = match self {
            Goal::Stalled { of, target } => {
                let stalled = |m: &Metrics| Some(m.of(of)?.pressure?.stalled);
                let stalled = stalled(now)?.saturating_sub(stalled(before)?);
                if over.is_zero() {
                    return Some(SCORE_MET);
                }
                stalled.as_secs_f64() / over.as_secs_f64() / target.as_secs_f64()
            }
            Goal::Refaults { of, ppm } => {
                let faults = |m: &Metrics| Some(m.of(of)?.pressure?.major_faults);
                let faults = faults(now)?.saturating_sub(faults(before)?);
                let working_set = now.of(of)?.working_set?;
                if over.is_zero() || faults == 0 && working_set == 0 {
                    return Some(SCORE_MET);
                }
                let bytes_a_minute = faults as f64 * PAGE_SIZE as f64 / over.as_secs_f64() * 60.0;
                bytes_a_minute / (working_set as f64 * f64::from(*ppm) / 1e6)
            }
            Goal::Free { bp } => f64::from(now.free_bp?) / f64::from(*bp),
            Goal::Resident { of, bytes } => *bytes as f64 / (now.of(of)?.resident? as f64).max(1.0),
            Goal::User { name, target } => now.user.get(name)? / target,
        };
        // The cast saturates; NaN gives no score.
        (!share.is_nan()).then_some((share * SCORE_MET as f64) as u64)
    }
}

/// The next input of a feedback loop, if the previous input `last` has the score `score`; the goal is
/// 10,000. As `damon_feed_loop_next_input`: the step grows with the distance from the goal. The input grows
/// by at most 2x per step, and drops to its minimum of 10,000 once the score is twice the goal.
#[must_use]
pub fn feed_loop(last: u64, score: u64) -> u64 {
    const MIN_LEVEL: u64 = 10_000;
    if score >= 2 * SCORE_MET {
        return MIN_LEVEL;
    }
    let step = u128::from(last) * u128::from(score.abs_diff(SCORE_MET)) / u128::from(SCORE_MET);
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    match score.cmp(&SCORE_MET) {
        std::cmp::Ordering::Equal => last,
        std::cmp::Ordering::Greater => last.saturating_sub(step).max(MIN_LEVEL),
        std::cmp::Ordering::Less => last.saturating_add(step),
    }
}

/// Moves a quota towards its goals, once per window.
#[derive(Debug, Clone)]
pub(super) struct Tuner {
    /// current quota in ten-thousandths of a byte
    level: u64,
    before: Option<(Nanos, Metrics)>,
}

/// A quota that has not been used may grow to this limit in bytes. The kernel begins with one byte, and
/// doubles.
const UNPROVEN: u64 = 1 << 20;

/// An unused part of the quota shrinks by this fraction (one sixteenth) per window. A few windows without
/// work cause no loss, because one snapshot may cover several windows; but an unused quota does not last for
/// an hour.
const UNUSED_DECAY: u64 = 16;

impl Default for Tuner {
    fn default() -> Self {
        Tuner { level: UNPROVEN * 10_000, before: None }
    }
}

impl Tuner {
    /// The bytes for the window that begins at `now`, if `used` bytes were used in the last one. At least one
    /// `unit`, the least that the action can affect: less would prevent it for ever.
    ///
    /// The goal with the highest score decides. The loop grows without bound if its input has no effect. With zero
    /// pressure on an idle machine, it would double without limit, and be far too high when work arrives.
    /// Therefore it grows to at most twice the bytes that were used, and any excess shrinks.
    pub fn tune(
        &mut self,
        goals: &[Goal],
        unit: u64,
        now: Nanos,
        metrics: &Metrics,
        used: u64,
    ) -> u64 {
        let (then, before) =
            self.before.replace((now, metrics.clone())).unwrap_or_else(|| (now, metrics.clone()));
        let over = now.since(then);
        let scores: Option<Vec<u64>> =
            goals.iter().map(|g| g.score(&before, metrics, over)).collect();
        let Some(scores) = scores else {
            // Without metrics, the scheme does nothing.
            return 0;
        };
        if goals.iter().zip(&scores).any(|(g, &s)| g.is_state() && s >= SCORE_MET) {
            return 0;
        }
        let score = scores.iter().copied().max().unwrap_or(SCORE_MET);
        let proven = used.saturating_mul(2).max(UNPROVEN).max(unit).saturating_mul(10_000);
        let next = feed_loop(self.level, score);
        let faded = self.level - self.level / UNUSED_DECAY;
        self.level = next.min(proven.max(faded)).max(unit * 10_000);
        self.bytes()
    }

    /// The tuned bytes per window.
    pub fn bytes(&self) -> u64 {
        self.level / 10_000
    }
}

#[cfg(test)]
#[path = "goal_tests.rs"]
mod tests;
