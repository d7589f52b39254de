//! The scores of a recording as text.

use crate::accuracy::{Accuracy, Blocks, Delay, KindScores, ScoreStatistics};
use crate::over_time::{F1, OverTime, SecondF1};

/// The scores as text, without those over time.
#[must_use]
pub fn accuracy_text(a: &Accuracy) -> String {
    let (hot, warm) = (&a.blocks.hot, &a.blocks.warm);
    let kinds = [
        ("hot", &a.hot),
        ("warm", &a.warm),
        ("cold", &a.cold),
        ("2 MiB: hot", hot),
        ("2 MiB: warm", warm),
    ];
    let kinds: String = kinds.iter().map(|(name, k)| kind(name, k)).collect();
    format!(
        "workload {}, seed {}; {} snapshots scored, {:.0} regions on average\n\n\
         {:16}{:>10}{:>8}{:>10}{:>8}\n{kinds}\n\
         log2 error of the rate  {}\n{}{}{}{:.0} TLB shootdowns a second\n",
        a.workload,
        a.seed,
        a.snapshots,
        a.regions,
        "",
        "precision",
        "worst",
        "recall",
        "worst",
        number(a.rate_error.run, 2),
        blocks(&a.blocks),
        moments(&a.over_time),
        delay(&a.delay),
        a.clears_per_second,
    )
}

fn kind(name: &str, k: &KindScores) -> String {
    let cells = |f: &ScoreStatistics| format!("{:>10}{:>8}", number(f.run, 3), number(f.worst, 3));
    format!("{name:16}{}{}\n", cells(&k.precision), cells(&k.recall))
}

fn number(x: Option<f64>, digits: usize) -> String {
    x.map_or_else(|| "-".to_owned(), |x| format!("{x:.digits$}"))
}

/// The scores of the record as a map of rates.
fn blocks(b: &Blocks) -> String {
    let right = b.intervals_right.map_or_else(String::new, |share| {
        format!("; {:.0} % of the 95 % intervals hold the truth", share * 100.0)
    });
    format!(
        "  of blocks of 2 MiB    {}, correlation {}{right}\n",
        number(b.log2_error.run, 2),
        number(b.correlation.run, 3),
    )
}

fn moments(o: &OverTime) -> String {
    format!(
        "F1 each 100 ms, by blocks of 2 MiB, without the first {} s of each phase: {}\n",
        o.settle_seconds,
        f1(&o.all)
    )
}

fn f1(f: &F1) -> String {
    format!("hot {}, warm {}", number(f.hot, 3), number(f.warm, 3))
}

/// The scores over time: a line for each second of the truth.
#[must_use]
pub fn over_time_text(o: &OverTime) -> String {
    let line = |s: &SecondF1| format!("{:>5} s  {}\n", s.at, f1(&s.f1));
    o.seconds.iter().fold("\nF1 by second of the truth\n".to_owned(), |text, s| text + &line(s))
}

/// The delays until changes of heat show; empty if there were no changes.
fn delay(d: &Delay) -> String {
    if d.seen + d.missed == 0 {
        return String::new();
    }
    format!(
        "changes of heat: {} seen, after {} s on average and {} s at most; {} not seen\n",
        d.seen,
        number(d.mean, 2),
        number(d.worst, 2),
        d.missed
    )
}
