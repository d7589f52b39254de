//! `isotherm report accuracy`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use isotherm_core::{Snapshot, TargetId};
use isotherm_report::json;
use isotherm_sim::{
    Accuracy, AccuracyBuilder, Blocks, Delay, F1, Figures, GroundTruth, Kind, OverTime,
};
use serde::Serialize;

use super::output::print;
use super::{each_snapshot, head, select};
use crate::cli;
use crate::log::say;

/// Scores a recording against the truth.
pub fn run(o: &cli::Accuracy) -> Result<ExitCode> {
    let truth = read(&o.truth)?;
    let head = head(&o.input)?;
    if !head.gaps.is_empty() {
        let missing: u64 = head.gaps.iter().map(|gap| gap.snapshots).sum();
        say(format_args!("isotherm: the record is damaged: {missing} snapshots are missing"));
    }
    let target = select::only(o.target.as_deref(), &head.targets)?;
    let mut builder = AccuracyBuilder::new(&truth, target).settle(o.settle);
    let mut covered = false;
    each_snapshot(&o.input, true, |s| {
        covered = covered || covers(s, target, &truth);
        builder.push(s);
        Ok(())
    })?;
    let accuracy = builder.finish();
    if !covered {
        bail!(
            "target {} of {} has no memory at the addresses of the truth: the record is of another process, \
             or --target must name the workload",
            target.0,
            o.input.path.display()
        );
    }
    if accuracy.snapshots == 0 {
        bail!(
            "no snapshot of {} is from the time of the truth, and later than 2 s after the recording began: \
             record the workload while it runs, and for longer",
            o.input.path.display()
        );
    }
    let text = if o.json {
        json(&Versioned { schema_version: 1, accuracy: &accuracy })? + "\n"
    } else {
        let each = if o.over_time { over_time(&accuracy.over_time) } else { String::new() };
        text(&accuracy) + &each
    };
    print(text.as_bytes())
}

/// Whether a region of the target lies in the memory that the truth covers.
fn covers(s: &Snapshot, target: TargetId, truth: &GroundTruth) -> bool {
    let own = s.targets.iter().filter(|t| t.id == target);
    own.flat_map(|t| &t.regions).any(|r| !truth.stretches_in(r.range).is_empty())
}

#[derive(Serialize)]
struct Versioned<'a> {
    schema_version: u32,
    #[serde(flatten)]
    accuracy: &'a Accuracy,
}

fn read(path: &Path) -> Result<GroundTruth> {
    let unreadable = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(unreadable)?;
    GroundTruth::read(file).with_context(|| path.display().to_string())
}

fn text(a: &Accuracy) -> String {
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
        "workload {}, seed {}; {} snapshots scored, {:.0} regions in the mean\n\n\
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

fn kind(name: &str, k: &Kind) -> String {
    let cells = |f: &Figures| format!("{:>10}{:>8}", number(f.run, 3), number(f.worst, 3));
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

/// One line for each second.
fn over_time(o: &OverTime) -> String {
    let line = |s: &isotherm_sim::SecondF1| format!("{:>5} s  {}\n", s.at, f1(&s.f1));
    o.seconds.iter().fold("\nF1 by second of the truth\n".to_owned(), |text, s| text + &line(s))
}

/// The delays until changes of heat show; empty if there were no changes.
fn delay(d: &Delay) -> String {
    if d.seen + d.missed == 0 {
        return String::new();
    }
    format!(
        "changes of heat: {} seen, after {} s in the mean and {} s at most; {} not seen\n",
        d.seen,
        number(d.mean, 2),
        number(d.worst, 2),
        d.missed
    )
}
