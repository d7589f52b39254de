//! How right a snapshot is.

use isotherm_core::{Snapshot, Thresholds};

use crate::machine::Machine;

/// Bytes that a snapshot reported against the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Score {
    /// reported
    pub reported: u64,
    /// true
    pub real: u64,
    /// both
    pub both: u64,
}

impl Score {
    /// Share of what was reported that is true; 1 if nothing was.
    #[must_use]
    pub fn precision(&self) -> f64 {
        share(self.both, self.reported)
    }

    /// Share of what is true that was reported; 1 if nothing is.
    #[must_use]
    pub fn recall(&self) -> f64 {
        share(self.both, self.real)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// Hot bytes as `snapshot` has them, against those that were touched at [`Thresholds::hot_hz`] or
/// more in its interval. The machine must still be as it was then.
#[must_use]
pub fn score_hot(snapshot: &Snapshot, machine: &Machine, thresholds: &Thresholds) -> Score {
    let (from, to, hz) = (snapshot.start, snapshot.end, thresholds.hot_hz);
    let mut score = Score::default();
    for view in &snapshot.targets {
        let Ok(truth) = machine.truth(view.id) else { continue };
        let hot = |range| truth.hot_bytes(range, from, to, hz);
        score.real += view.mappings.iter().map(|m| hot(m.range)).sum::<u64>();
        for (range, reported) in view.regions.iter().map(|r| (r.range, r.bytes(thresholds).hot)) {
            score.reported += reported;
            score.both += if reported > 0 { hot(range).min(reported) } else { 0 };
        }
    }
    score
}
