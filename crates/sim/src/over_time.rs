//! Accuracy of a recording at each moment: every 100 ms, by blocks of 2 MiB.
//!
//! The record's statement about a moment is the snapshot that covers it. A monitor that reports a change late,
//! or spreads it over a long snapshot, therefore loses score here. The scores of whole snapshots do not show
//! this, because they leave out memory that changes within a snapshot.

use std::time::Duration;

use isotherm_core::{Nanos, Snapshot, TargetId};
use serde::Serialize;

use crate::blocks::heat_between;
use crate::ground_truth::GroundTruth;
use crate::score::Score;

/// Default time that is left out at the start of each phase, because no monitor reports a change at once.
pub const PHASE_LEAD_IN: Duration = Duration::from_millis(600);
/// Time between two scored moments.
const SCORE_INTERVAL: Duration = Duration::from_millis(100);

/// F1 scores, the harmonic means of precision and recall, from 0 to 1; `None` if no memory has this heat or is
/// reported with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct F1 {
    /// blocks with a mean rate of 10 Hz or more
    pub hot: Option<f64>,
    /// below, and of 0.2 Hz or more
    pub warm: Option<f64>,
}

/// F1 scores of a recording.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OverTime {
    /// time left out at the start of each phase, in s
    pub settle_seconds: f64,
    /// over all moments
    pub all: F1,
    /// for each second of the truth in which moments were scored
    pub seconds: Vec<SecondF1>,
}

/// F1 scores of one second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SecondF1 {
    /// start of the second since the start of the truth, in s
    pub at: f64,
    /// in it
    #[serde(flatten)]
    pub f1: F1,
}

/// Scores the moments in the snapshots, one snapshot after the other.
#[derive(Debug)]
pub(crate) struct Moments {
    settle: Duration,
    begin: Nanos,
    /// moments that no snapshot has covered yet, the next one last
    left: Vec<Nanos>,
    /// hot and warm, by second
    seconds: Vec<(u64, [Score; 2])>,
}

impl Moments {
    pub fn new(truth: &GroundTruth, settle: Duration) -> Self {
        let mut left: Vec<Nanos> = phases(truth)
            .flat_map(|(start, end)| {
                let first = start + settle;
                let within = move |at: &Nanos| *at + SCORE_INTERVAL <= end;
                std::iter::successors(Some(first), |&at| Some(at + SCORE_INTERVAL))
                    .take_while(within)
            })
            .collect();
        left.reverse();
        let begin = truth.intervals.first().map_or(Nanos(0), |v| v.start());
        Moments { settle, begin, left, seconds: Vec::new() }
    }

    /// Scores the moments before the end of a snapshot that were not scored yet. Moments before `from` are
    /// never scored.
    pub fn push(&mut self, truth: &GroundTruth, s: &Snapshot, target: TargetId, from: Nanos) {
        while let Some(at) = self.left.pop_if(|at| *at < s.end) {
            let scores =
                (at >= from).then(|| heat_between(truth, s, target, (at, at + SCORE_INTERVAL)));
            let Some(scores) = scores.flatten() else { continue };
            let second = at.since(self.begin).as_secs();
            if self.seconds.last().is_none_or(|(last, _)| *last != second) {
                self.seconds.push((second, Default::default()));
            }
            if let Some((_, sums)) = self.seconds.last_mut() {
                sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score);
            }
        }
    }

    pub fn finish(self) -> OverTime {
        let mut all = [Score::default(); 2];
        let mut seconds = Vec::new();
        for (second, scores) in self.seconds {
            all.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score);
            seconds.push(SecondF1 { at: second as f64, f1: f1(scores) });
        }
        OverTime { settle_seconds: self.settle.as_secs_f64(), all: f1(all), seconds }
    }
}

fn f1([hot, warm]: [Score; 2]) -> F1 {
    F1 { hot: hot.f1(), warm: warm.f1() }
}

/// The start and end of each phase.
fn phases(truth: &GroundTruth) -> impl Iterator<Item = (Nanos, Nanos)> + '_ {
    let chunks = truth.intervals.chunk_by(|a, b| a.phase == b.phase);
    chunks.filter_map(|c| Some((c.first()?.start(), c.last()?.end())))
}

#[cfg(test)]
#[path = "over_time_tests.rs"]
mod tests;
