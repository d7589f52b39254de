//! Accuracy of a whole recording, as figures.

use std::time::Duration;

use isotherm_core::{Nanos, Snapshot, TargetId};
use serde::Serialize;

use crate::blocks::{BlockScores, block_scores};
use crate::changes::{ChangeRule, Delays, Seeing};
use crate::ground_truth::{GroundTruth, MachineKind};
use crate::over_time::{Moments, OverTime, PHASE_LEAD_IN};
use crate::score::{Score, Scores, score};

/// Start of the scores for hot memory. Until then, the monitor sweeps and splits.
pub const HOT_SCORES_FROM: Duration = Duration::from_secs(2);
/// Start of the scores for cold and warm memory and for changes. Earlier, no memory can have been untouched for
/// the 5 s that make it cold.
pub const AGED: Duration = Duration::from_secs(7);

/// The accuracy of a recording of a workload, compared with the ground truth.
#[derive(Debug, Clone, Serialize)]
pub struct Accuracy {
    /// version of this format
    pub schema_version: u32,
    /// name of the workload
    pub workload: String,
    /// the kind of machine
    pub machine: MachineKind,
    /// seed of the workload's layout and random numbers
    pub seed: u64,
    /// snapshots that count for hot memory
    pub snapshots: usize,
    /// touched at 10 Hz or more
    pub hot: KindScores,
    /// neither hot nor cold
    pub warm: KindScores,
    /// untouched for 5 s or more
    pub cold: KindScores,
    /// root mean square of the binary logarithm of reported over true rate
    pub rate_error: ScoreStatistics,
    /// delay until changes of heat are reported
    pub delay: Delay,
    /// delay until at least half of the memory that becomes hot is reported as hot
    pub heating: Delay,
    /// accuracy as a map of rates, by blocks of 2 MiB
    pub blocks: Blocks,
    /// accuracy for hot and warm blocks of 2 MiB at each moment
    pub over_time: OverTime,
    /// mean, in bytes
    pub unknown_bytes: f64,
    /// mean number of regions
    pub regions: f64,
    /// TLB shootdowns per second, over all targets of the recording
    pub clears_per_second: f64,
    /// CPU time that the targets lost, in percent of one CPU, as far as the monitor reports it
    pub lost_percent: f64,
}

/// Accuracy for one kind of memory.
#[derive(Debug, Clone, Serialize)]
pub struct KindScores {
    /// share of the bytes reported as this kind that are of this kind
    pub precision: ScoreStatistics,
    /// share of the bytes of this kind that were reported as this kind
    pub recall: ScoreStatistics,
    /// mean bytes that count neither as right nor as wrong
    pub left_out_bytes: f64,
}

/// See [`BlockScores`].
#[derive(Debug, Clone, Serialize)]
pub struct Blocks {
    /// mean of the absolute binary logarithm of reported over true rate
    pub log2_error: ScoreStatistics,
    /// correlation of the logarithms of both
    pub correlation: ScoreStatistics,
    /// blocks with a mean rate of at least 10 Hz
    pub hot: KindScores,
    /// blocks with a mean rate below that and of at least 0.2 Hz
    pub warm: KindScores,
    /// Share of the touched regions, over all snapshots, whose 95 % interval contains the truth.
    pub intervals_right: Option<f64>,
}

/// Statistics of a share or an error; `None` if it is not defined anywhere.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ScoreStatistics {
    /// over all bytes of all snapshots
    pub run: Option<f64>,
    /// mean over snapshots
    pub mean: Option<f64>,
    /// median over snapshots
    pub median: Option<f64>,
    /// worst snapshot
    pub worst: Option<f64>,
}

/// Delays until changes are reported.
#[derive(Debug, Clone, Serialize)]
pub struct Delay {
    /// mean, in s
    pub mean: Option<f64>,
    /// maximum, in s
    pub worst: Option<f64>,
    /// number of reported changes
    pub seen: usize,
    /// number of changes that ended before they were reported
    pub missed: usize,
}

/// Scores the snapshots of one target against the truth, one by one.
#[derive(Debug)]
pub struct AccuracyBuilder<'a> {
    truth: &'a GroundTruth,
    target: TargetId,
    /// start of the first snapshot, and the changes after it
    begun: Option<(Nanos, [Seeing; 2])>,
    settled: Vec<Scores>,
    aged: Vec<Scores>,
    blocks: Vec<BlockScores>,
    moments: Moments,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    snapshots: u32,
    regions: f64,
    clears: f64,
    lost: f64,
    seconds: f64,
}

impl<'a> AccuracyBuilder<'a> {
    /// A builder for `target`, which `truth` describes.
    #[must_use]
    pub fn new(truth: &'a GroundTruth, target: TargetId) -> Self {
        AccuracyBuilder {
            truth,
            target,
            begun: None,
            settled: Vec::new(),
            aged: Vec::new(),
            blocks: Vec::new(),
            moments: Moments::new(truth, PHASE_LEAD_IN),
            sums: Sums::default(),
        }
    }

    /// Where moments are scored, leaves out this much time at the start of each phase.
    #[must_use]
    pub fn settle(self, settle: Duration) -> Self {
        AccuracyBuilder { moments: Moments::new(self.truth, settle), ..self }
    }

    /// Adds the next snapshot.
    pub fn push(&mut self, s: &Snapshot) {
        let (begin, seeing) = self.begun.get_or_insert_with(|| {
            let seeing = |what| Seeing::new(self.truth, self.target, s.start + AGED, what);
            (s.start, [seeing(ChangeRule::CHANGED), seeing(ChangeRule::HEATED)])
        });
        seeing.iter_mut().for_each(|seeing| seeing.push(s));
        let begin = *begin;
        self.moments.push(self.truth, s, self.target, begin + HOT_SCORES_FROM);
        self.sums.snapshots += 1;
        let own = s.targets.iter().filter(|t| t.id == self.target);
        self.sums.regions += own.map(|t| t.regions.len()).sum::<usize>() as f64;
        self.sums.clears += s.cost.clears as f64;
        self.sums.lost += s.cost.lost.as_secs_f64();
        self.sums.seconds += s.end.since(s.start).as_secs_f64();
        if s.start < begin + HOT_SCORES_FROM {
            return;
        }
        let Some(scores) = score(self.truth, s, self.target) else { return };
        if s.start >= begin + AGED {
            self.aged.push(scores);
        }
        self.settled.push(scores);
        self.blocks.extend(block_scores(self.truth, s, self.target));
    }

    /// The figures.
    #[must_use]
    pub fn finish(self) -> Accuracy {
        let AccuracyBuilder { truth, begun, settled, aged, blocks, moments, sums, .. } = self;
        let [changed, heated] =
            begun.map_or_else(Default::default, |(_, seeing)| seeing.map(Seeing::finish));
        let a_second = |sum: f64| if sums.seconds > 0.0 { sum / sums.seconds } else { 0.0 };
        Accuracy {
            schema_version: 1,
            workload: truth.workload.clone(),
            machine: truth.machine,
            seed: truth.seed,
            snapshots: settled.len(),
            hot: kind(settled.iter().map(|s| s.hot)),
            warm: kind(aged.iter().map(|s| s.warm)),
            cold: kind(aged.iter().map(|s| s.cold)),
            rate_error: rate_error(&settled),
            delay: delay(&changed),
            heating: delay(&heated),
            blocks: of_blocks(&blocks),
            over_time: moments.finish(),
            unknown_bytes: mean(settled.iter().map(|s| s.unknown as f64)).unwrap_or(0.0),
            regions: sums.regions / f64::from(sums.snapshots.max(1)),
            clears_per_second: a_second(sums.clears),
            lost_percent: a_second(sums.lost) * 100.0,
        }
    }
}

fn kind(scores: impl Iterator<Item = Score>) -> KindScores {
    let scores: Vec<Score> = scores.collect();
    let sum = |f: fn(&Score) -> u64| scores.iter().map(f).sum();
    let all = Score {
        reported: sum(|s| s.reported),
        real: sum(|s| s.real),
        both: sum(|s| s.both),
        left_out: sum(|s| s.left_out),
    };
    let figures = |f: fn(&Score) -> Option<f64>| {
        let each: Vec<f64> = scores.iter().filter_map(f).collect();
        let worst = each.iter().copied().reduce(f64::min);
        ScoreStatistics {
            run: f(&all),
            mean: mean(each.iter().copied()),
            median: median(each),
            worst,
        }
    };
    KindScores {
        precision: figures(Score::precision),
        recall: figures(Score::recall),
        left_out_bytes: mean(scores.iter().map(|s| s.left_out as f64)).unwrap_or(0.0),
    }
}

fn rate_error(scores: &[Scores]) -> ScoreStatistics {
    let each: Vec<f64> = scores.iter().filter_map(|s| s.rate_error).collect();
    let run = mean(each.iter().map(|e| e * e)).map(f64::sqrt);
    ScoreStatistics { run, ..over(each, f64::max) }
}

/// Statistics over snapshots; `run` is the mean.
fn over(each: Vec<f64>, worst: fn(f64, f64) -> f64) -> ScoreStatistics {
    let mean = mean(each.iter().copied());
    let worst = each.iter().copied().reduce(worst);
    ScoreStatistics { run: mean, mean, worst, median: median(each) }
}

fn of_blocks(scores: &[BlockScores]) -> Blocks {
    let (all, right) =
        scores.iter().fold((0, 0), |(all, right), s| (all + s.intervals.0, right + s.intervals.1));
    Blocks {
        log2_error: over(scores.iter().filter_map(|s| s.log2_error).collect(), f64::max),
        correlation: over(scores.iter().filter_map(|s| s.correlation).collect(), f64::min),
        hot: kind(scores.iter().map(|s| s.hot)),
        warm: kind(scores.iter().map(|s| s.warm)),
        intervals_right: (all > 0).then(|| right as f64 / all as f64),
    }
}

fn delay(delays: &Delays) -> Delay {
    let seconds: Vec<f64> = delays.seen.iter().map(Duration::as_secs_f64).collect();
    Delay {
        seen: seconds.len(),
        missed: delays.missed,
        worst: seconds.iter().copied().reduce(f64::max),
        mean: mean(seconds.into_iter()),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), v| (sum + v, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// The median; the upper one of two middle values.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
