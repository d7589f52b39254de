//! The figures of one workload, from what was watched.

use std::time::Duration;

use isotherm_core::{Heat, Snapshot};
use isotherm_sim::{Delays, MachineKind, Score, Scores, delays, score};
use serde::Serialize;

use super::Watched;

/// Hot memory counts from here on: until then the monitor sweeps and splits.
pub const SETTLED: Duration = Duration::from_secs(2);
/// Cold and warm memory, and changes, from here on: nothing can have been seen untouched for the
/// 5 s that make it cold before.
pub const AGED: Duration = Duration::from_secs(7);

/// A workload on a machine.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
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
    /// TLB shootdowns
    pub clears_per_second: f64,
    /// of one CPU, in percent
    pub own_cpu_percent: Option<f64>,
    /// of the record on disk
    pub bytes_a_region: Option<f64>,
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

/// The figures of what was watched.
#[must_use]
pub fn row(w: &Watched) -> Row {
    let begin = w.snapshots.first().map_or_else(Default::default, |s| s.start);
    let scored = |after: Duration| -> Vec<Scores> {
        let later = w.snapshots.iter().filter(|s| s.start >= begin + after);
        later.filter_map(|s| score(&w.truth, s, w.target)).collect()
    };
    let (settled, aged) = (scored(SETTLED), scored(AGED));
    let mean_of = |f: fn(&Snapshot) -> f64| mean(w.snapshots.iter().map(|s| f(s))).unwrap_or(0.0);
    let seconds = mean_of(|s| s.end.since(s.start).as_secs_f64());
    Row {
        workload: w.truth.workload.clone(),
        machine: w.truth.machine,
        seed: w.truth.seed,
        snapshots: settled.len(),
        hot: kind(&settled, Heat::Hot),
        warm: kind(&aged, Heat::Warm),
        cold: kind(&aged, Heat::Cold),
        rate_error: rate_error(&settled),
        delay: delay(&delays(&w.truth, &w.snapshots, w.target, begin + AGED)),
        unknown_bytes: mean(settled.iter().map(|s| s.unknown as f64)).unwrap_or(0.0),
        regions: mean_of(|s| s.nr_regions() as f64),
        clears_per_second: mean_of(|s| s.cost.clears as f64) / seconds,
        own_cpu_percent: w.own_cpu.map(|share| share * 100.0),
        bytes_a_region: w.record_bytes.map(|bytes| {
            let regions: usize = w.snapshots.iter().map(|s| s.nr_regions()).sum();
            bytes as f64 / regions.max(1) as f64
        }),
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
        Figures { run: f(&all), mean: mean(each.into_iter()), worst }
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
        mean: mean(each.into_iter()),
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
