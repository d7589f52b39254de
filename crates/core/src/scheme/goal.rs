//! Goals: a quota that tunes itself.

use std::sync::Arc;
use std::time::Duration;

use super::SchemeError;
use super::metrics::{Metrics, Scope};
use crate::range::PAGE_SIZE;
use crate::time::Nanos;

/// What a quota is to bring about. More is done while it is missed, less when it is passed.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    /// Some tasks wait for memory for so long of each second (PSI "some").
    Stalled {
        /// whose
        of: Scope,
        /// of a second
        target: Duration,
    },
    /// At most so much of the working set is read back from disk or swap within a minute.
    Refaults {
        /// whose
        of: Scope,
        /// millionths of the working set: 2000 is 0.2 %
        ppm: u32,
    },
    /// So much of the machine's memory is free, of 10,000. When that is reached nothing is done.
    Free {
        /// share
        bp: u32,
    },
    /// So much is resident. When that is reached nothing is done.
    Resident {
        /// whose
        of: Scope,
        /// how much
        bytes: u64,
    },
    /// A figure of the user's own: the more is done, the more it grows.
    User {
        /// as in [`Metrics::user`]
        name: Arc<str>,
        /// what it is to be
        target: f64,
    },
}

/// The score of a goal that is met.
const MET: u64 = 10_000;

impl Goal {
    pub(super) fn check(&self) -> Result<(), SchemeError> {
        let possible = match self {
            Goal::Stalled { target, .. } => !target.is_zero() && *target <= Duration::from_secs(1),
            Goal::Refaults { ppm, .. } => (1..=1_000_000).contains(ppm),
            Goal::Free { bp } => (1..=10_000).contains(bp),
            Goal::Resident { bytes, .. } => *bytes > 0,
            Goal::User { target, .. } => target.is_finite() && *target > 0.0,
        };
        if possible { Ok(()) } else { Err(SchemeError::Goal(self.clone())) }
    }

    /// Whether it tells a state, which is reached, not a flow, which is kept up.
    fn is_state(&self) -> bool {
        matches!(self, Goal::Free { .. } | Goal::Resident { .. })
    }

    /// How much of it is there, of 10,000; more if it is passed. None if that cannot be told.
    /// `before` is as of `over` ago.
    fn score(&self, before: &Metrics, now: &Metrics, over: Duration) -> Option<u64> {
        let share = match self {
            Goal::Stalled { of, target } => {
                let stalled = |m: &Metrics| Some(m.of(of)?.pressure?.stalled);
                let stalled = stalled(now)?.saturating_sub(stalled(before)?);
                if over.is_zero() {
                    return Some(MET);
                }
                stalled.as_secs_f64() / over.as_secs_f64() / target.as_secs_f64()
            }
            Goal::Refaults { of, ppm } => {
                let faults = |m: &Metrics| Some(m.of(of)?.pressure?.major_faults);
                let faults = faults(now)?.saturating_sub(faults(before)?);
                let working_set = now.of(of)?.working_set?;
                if over.is_zero() || faults == 0 && working_set == 0 {
                    return Some(MET);
                }
                let bytes_a_minute = faults as f64 * PAGE_SIZE as f64 / over.as_secs_f64() * 60.0;
                bytes_a_minute / (working_set as f64 * f64::from(*ppm) / 1e6)
            }
            Goal::Free { bp } => f64::from(now.free_bp?) / f64::from(*bp),
            Goal::Resident { of, bytes } => *bytes as f64 / (now.of(of)?.resident? as f64).max(1.0),
            Goal::User { name, target } => now.user.get(name)? / target,
        };
        // A float becomes the nearest integer that there is; not a number becomes none at all.
        (!share.is_nan()).then_some((share * MET as f64) as u64)
    }
}

/// The next input of a loop whose last input of `last` has scored `score`; 10,000 is the goal.
/// `damon_feed_loop_next_input`: the further off, the bigger the step, at most twofold up, and from
/// twice the goal on to the least, 10,000.
#[must_use]
pub fn feed_loop(last: u64, score: u64) -> u64 {
    const LEAST: u64 = 10_000;
    if score >= 2 * MET {
        return LEAST;
    }
    let step = u128::from(last) * u128::from(score.abs_diff(MET)) / u128::from(MET);
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    match score.cmp(&MET) {
        std::cmp::Ordering::Equal => last,
        std::cmp::Ordering::Greater => last.saturating_sub(step).max(LEAST),
        std::cmp::Ordering::Less => last.saturating_add(step),
    }
}

/// Moves a quota towards its goals, once each window.
#[derive(Debug, Clone)]
pub(super) struct Tuner {
    /// ten-thousandths of a byte
    level: u64,
    before: Option<(Nanos, Metrics)>,
}

/// Up to this a quota may grow without having been used: the kernel begins with a byte, and doubles.
const UNPROVEN: u64 = 1 << 20;

/// What was not used is let go of by such a part each window: some windows without work do no harm, as
/// there may be several to a snapshot, but an hour without is no promise.
const FADING: u64 = 16;

impl Default for Tuner {
    fn default() -> Self {
        Tuner { level: UNPROVEN * 10_000, before: None }
    }
}

impl Tuner {
    /// Bytes for the window that begins at `now`, where `used` bytes were used in the last one. There is
    /// always enough for a `unit`, the least that the action is done to: less would be nothing for ever.
    ///
    /// The goal that is nearest to being passed decides. The loop grows without bound where its input
    /// has no effect: with pressure at zero on an idle machine it would double for ever, and be far
    /// too high when there is something to do. So it grows to at most twice of what was used, and what
    /// is beyond that fades.
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
            // Nothing is done blindly.
            return 0;
        };
        if goals.iter().zip(&scores).any(|(g, &s)| g.is_state() && s >= MET) {
            return 0;
        }
        let score = scores.iter().copied().max().unwrap_or(MET);
        let proven = used.saturating_mul(2).max(UNPROVEN).max(unit).saturating_mul(10_000);
        let next = feed_loop(self.level, score);
        let faded = self.level - self.level / FADING;
        self.level = next.min(proven.max(faded)).max(unit * 10_000);
        self.bytes()
    }

    /// Bytes of a window, as far as they were tuned.
    pub fn bytes(&self) -> u64 {
        self.level / 10_000
    }
}

#[cfg(test)]
#[path = "goal_tests.rs"]
mod tests;
