//! `isotherm edit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use isotherm::output_file::keep_input;
use isotherm::reading::{self, Head, Input, ReadingError, RecordSelection, lost_text, open};
use isotherm_core::Missing;
use isotherm_record::edit::{Edit, EditError, Rewriter};
use isotherm_record::{AtomicFiles, Writer};
use isotherm_report::counted;

use crate::cli;
use crate::log::say;

/// Writes a record of parts of others.
pub fn run(o: &cli::Edit) -> Result<ExitCode> {
    o.files.iter().try_for_each(|path| keep_input(&o.output, path))?;
    let failed = |path: &Path, e: anyhow::Error| {
        let repair = if is_repairable(&e) && !o.repair { " without --repair" } else { "" };
        e.context(format!("cannot edit {}{repair}", path.display()))
    };
    let input = |path: &PathBuf| Input { path: path.clone(), skip_damaged: o.repair };
    let head = |path| Head::read(&input(path)).map_err(|e| failed(path, e.into()));
    let heads = o.files.iter().map(head).collect::<Result<Vec<_>>>()?;
    let missing = heads.iter().fold(Missing::default(), |missing, head| missing.or(head.missing));
    let mut rewriter = None;
    for (path, head) in o.files.iter().zip(heads) {
        add(o, input(path), head, missing, &mut rewriter).map_err(|e| failed(path, e))?;
    }
    let summary = rewriter.map(Rewriter::finish).transpose()?.unwrap_or_default();
    let snapshots = counted(summary.snapshots, "snapshot");
    say(format_args!("wrote {snapshots} to {}", o.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Adds a record to those before it. The first one decides on the facts, except those that are `missing` in any.
fn add(
    o: &cli::Edit,
    input: Input,
    head: Head,
    missing: Missing,
    rewriter: &mut Option<Rewriter<AtomicFiles>>,
) -> Result<()> {
    let part = RecordSelection { input, time: None, targets: o.target.clone() };
    let targets = reading::options(&part, &head)?.filter.targets;
    let edit = Edit { time: o.time.clone(), addr: o.addr, targets, aggr: o.aggr };
    let rewriter = match rewriter {
        Some(rewriter) => rewriter,
        none => {
            let facts = head.edited(&part.input, missing)?;
            let writer = Writer::create_whole(&o.output, &facts)?;
            none.insert(Rewriter::new(writer, facts))
        }
    };
    let lacked = rewriter.add(open(&part.input)?, &edit, o.repair)?;
    if let Some(torn) = lacked.torn {
        say(format_args!("isotherm: {torn}"));
    }
    if lacked.lost.places > 0 {
        say(format_args!("isotherm: {}: {}", part.input.path.display(), lost_text(&lacked.lost)));
    }
    Ok(())
}

/// Whether `--repair` helps.
fn is_repairable(e: &anyhow::Error) -> bool {
    e.downcast_ref().is_some_and(ReadingError::is_repairable)
        || matches!(e.downcast_ref(), Some(EditError::Read(e)) if e.is_repairable())
}
