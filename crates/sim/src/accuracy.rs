//! How right a whole recording is, in figures.

use std::time::Duration;

use isotherm_core::{Heat, Nanos, Snapshot, TargetId};
use serde::Serialize;

use crate::changes::{Delays, Seeing};
use crate::ground_truth::{GroundTruth, MachineKind};
use crate::score::{Score, Scores, score};

/// Hot memory counts from here on: until then the monitor sweeps and splits.
pub const SETTLED: Duration = Duration::from_secs(2);
/// Cold and warm memory, and changes, from here on: nothing can have been seen untouched for the
/// 5 s that make it cold before.
pub const AGED: Duration = Duration::from_secs(7);

/// A recording of a workload against the truth.
#[derive(Debug, Clone, Serialize)]
pub struct Accuracy {
    /// its name
    pub workload: String,
    /// where
    pub machine: MachineKind,
    /// of everything
    pub seed: u64,
    /// that counted for hot memory
    pub snapshots: usize,
    /// touched at 10 Hz or more
    pub hot: Kind,
    /// the rest
    pub warm: Kind,
    /// untouched for 5 s or more
    pub cold: Kind,
    /// root mean square of the binary logarithm of reported over true rate
    pub rate_error: Figures,
    /// of changes of heat
    pub delay: Delay,
    /// bytes, mean
    pub unknown_bytes: f64,
    /// mean
    pub regions: f64,
    /// TLB shootdowns, for all targets of the recording
    pub clears_per_second: f64,
}

/// How well one kind of memory was found.
#[derive(Debug, Clone, Serialize)]
pub struct Kind {
    /// share of the bytes called so that are so
    pub precision: Figures,
    /// share of the bytes that are so that were called so
    pub recall: Figures,
    /// bytes that are neither right nor wrong, mean
    pub left_out_bytes: f64,
}

/// A share or an error, where there is something that it is of.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Figures {
    /// over all bytes of all snapshots
    pub run: Option<f64>,
    /// over snapshots
    pub mean: Option<f64>,
    /// over snapshots
    pub median: Option<f64>,
    /// of all snapshots
    pub worst: Option<f64>,
}

/// How soon changes were seen.
#[derive(Debug, Clone, Serialize)]
pub struct Delay {
    /// s
    pub mean: Option<f64>,
    /// s
    pub worst: Option<f64>,
    /// changes seen
    pub seen: usize,
    /// changes that were over before they were seen
    pub missed: usize,
}

/// Tallies snapshots of one target against the truth, as they come.
#[derive(Debug)]
pub struct AccuracyBuilder<'a> {
    truth: &'a GroundTruth,
    target: TargetId,
    /// when the first snapshot began, and the changes from then on
    begun: Option<(Nanos, Seeing)>,
    settled: Vec<Scores>,
    aged: Vec<Scores>,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    snapshots: u32,
    regions: f64,
    clears: f64,
    seconds: f64,
}

impl<'a> AccuracyBuilder<'a> {
    /// Of `target`, which `truth` is about.
    #[must_use]
    pub fn new(truth: &'a GroundTruth, target: TargetId) -> Self {
        AccuracyBuilder {
            truth,
            target,
            begun: None,
            settled: Vec::new(),
            aged: Vec::new(),
            sums: Sums::default(),
        }
    }

    /// The next snapshot.
    pub fn push(&mut self, s: &Snapshot) {
        let (begin, seeing) = self
            .begun
            .get_or_insert_with(|| (s.start, Seeing::new(self.truth, self.target, s.start + AGED)));
        seeing.push(s);
        let begin = *begin;
        self.sums.snapshots += 1;
        let own = s.targets.iter().filter(|t| t.id == self.target);
        self.sums.regions += own.map(|t| t.regions.len()).sum::<usize>() as f64;
        self.sums.clears += s.cost.clears as f64;
        self.sums.seconds += s.end.since(s.start).as_secs_f64();
        if s.start < begin + SETTLED {
            return;
        }
        let Some(scores) = score(self.truth, s, self.target) else { return };
        if s.start >= begin + AGED {
            self.aged.push(scores);
        }
        self.settled.push(scores);
    }

    /// The figures.
    #[must_use]
    pub fn finish(self) -> Accuracy {
        let AccuracyBuilder { truth, begun, settled, aged, sums, .. } = self;
        let delays = begun.map_or_else(Delays::default, |(_, seeing)| seeing.finish());
        Accuracy {
            workload: truth.workload.clone(),
            machine: truth.machine,
            seed: truth.seed,
            snapshots: settled.len(),
            hot: kind(&settled, Heat::Hot),
            warm: kind(&aged, Heat::Warm),
            cold: kind(&aged, Heat::Cold),
            rate_error: rate_error(&settled),
            delay: delay(&delays),
            unknown_bytes: mean(settled.iter().map(|s| s.unknown as f64)).unwrap_or(0.0),
            regions: sums.regions / f64::from(sums.snapshots.max(1)),
            clears_per_second: if sums.seconds > 0.0 { sums.clears / sums.seconds } else { 0.0 },
        }
    }
}

fn kind(scores: &[Scores], heat: Heat) -> Kind {
    let scores: Vec<Score> = scores.iter().map(|s| s.of(heat)).collect();
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
        Figures { run: f(&all), mean: mean(each.iter().copied()), median: median(each), worst }
    };
    Kind {
        precision: figures(Score::precision),
        recall: figures(Score::recall),
        left_out_bytes: mean(scores.iter().map(|s| s.left_out as f64)).unwrap_or(0.0),
    }
}

fn rate_error(scores: &[Scores]) -> Figures {
    let each: Vec<f64> = scores.iter().filter_map(|s| s.rate_error).collect();
    Figures {
        run: mean(each.iter().map(|e| e * e)).map(f64::sqrt),
        worst: each.iter().copied().reduce(f64::max),
        mean: mean(each.iter().copied()),
        median: median(each),
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

/// The upper one of two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
