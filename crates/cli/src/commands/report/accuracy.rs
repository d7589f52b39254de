//! `isotherm report accuracy`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use isotherm::reading::{Head, each_snapshot, only};
use isotherm_core::{Snapshot, TargetId};
use isotherm_report::counted;
use isotherm_sim::{AccuracyBuilder, GroundTruth, accuracy_text, over_time_text};

use super::output::show;
use crate::cli;
use crate::log::say;

/// Scores a recording against the truth.
pub fn run(o: &cli::Accuracy) -> Result<ExitCode> {
    let truth = read(&o.truth)?;
    let input = o.input.input();
    let head = Head::read(&input)?;
    if !head.gaps.is_empty() {
        let missing: u64 = head.gaps.iter().map(|gap| gap.snapshots).sum();
        let missing = counted(missing, "snapshot");
        say(format_args!("isotherm: the record is damaged: it misses {missing}"));
    }
    let target = only(o.target.as_deref(), &head.targets)?;
    let mut builder = AccuracyBuilder::new(&truth, target).settle(o.settle);
    let mut covered = false;
    each_snapshot(&input, true, |s| {
        covered = covered || covers(s, target, &truth);
        builder.push(s);
        anyhow::Ok(())
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
    show(o.json, &accuracy, || {
        let each = if o.over_time { over_time_text(&accuracy.over_time) } else { String::new() };
        accuracy_text(&accuracy) + &each
    })
}

/// Whether a region of the target lies in the memory that the truth covers.
fn covers(s: &Snapshot, target: TargetId, truth: &GroundTruth) -> bool {
    let own = s.targets.iter().filter(|t| t.id == target);
    own.flat_map(|t| &t.regions).any(|r| !truth.stretches_in(r.range).is_empty())
}

fn read(path: &Path) -> Result<GroundTruth> {
    let unreadable = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(unreadable)?;
    GroundTruth::read(file).with_context(|| path.display().to_string())
}
