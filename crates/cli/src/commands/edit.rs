//! `isotherm edit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::output_file::keep_input;
use isotherm::reading::{self, Head, Input, ReadingError, RecordSelection, lost_text, open};
use isotherm_core::Missing;
use isotherm_record::edit::{Edit, EditError, Rewriter};
use isotherm_record::{AtomicFiles, Event, ReadError, RecordingHeader, Writer};

use crate::cli;
use crate::log::{counted, say};

/// Writes a record of parts of others.
pub fn run(o: &cli::Edit) -> Result<ExitCode> {
    o.files.iter().try_for_each(|path| keep_input(&o.output, path))?;
    let mut rewriter = None;
    for path in &o.files {
        add(o, path, &mut rewriter).map_err(|e| {
            let repair = if is_damage(&e) && !o.repair { " without --repair" } else { "" };
            e.context(format!("cannot edit {}{repair}", path.display()))
        })?;
    }
    let summary = rewriter.map(Rewriter::finish).transpose()?.unwrap_or_default();
    let snapshots = counted(summary.snapshots, "snapshot");
    say(format_args!("wrote {snapshots} to {}", o.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Adds a record to those before it. The first one decides on the facts.
fn add(o: &cli::Edit, path: &Path, rewriter: &mut Option<Rewriter<AtomicFiles>>) -> Result<()> {
    let input = Input { path: path.to_owned(), skip_damaged: o.repair };
    let part = RecordSelection { input, time: None, targets: o.target.clone() };
    let head = Head::read(&part.input)?;
    let targets = reading::options(&part, &head)?.filter.targets;
    let edit = Edit { time: o.time.clone(), addr: o.addr, targets, aggr: o.aggr };
    let rewriter = match rewriter {
        Some(rewriter) => rewriter,
        none => {
            let facts = head.facts.map_or_else(|| presumed(&part.input), Ok)?;
            let facts = edited(facts, missing(o));
            let writer = Writer::create_whole(&o.output, &facts)?;
            none.insert(Rewriter::new(writer, facts))
        }
    };
    let lacked = rewriter.add(open(&part.input)?, &edit, o.repair)?;
    if let Some(torn) = lacked.torn {
        say(format_args!("isotherm: {torn}"));
    }
    if lacked.lost.places > 0 {
        say(format_args!("isotherm: {}: {}", path.display(), lost_text(&lacked.lost)));
    }
    Ok(())
}

/// Whether `--repair` helps.
fn is_damage(e: &anyhow::Error) -> bool {
    let damage = |e: &ReadError| matches!(e, ReadError::Torn { .. } | ReadError::Damaged { .. });
    let reading = e.downcast_ref().and_then(|e: &ReadingError| match e {
        ReadingError::Read(e) => Some(e),
        _ => None,
    });
    let editing = e.downcast_ref().and_then(|e: &EditError| match e {
        EditError::Read(e) => Some(e),
        _ => None,
    });
    reading.or(editing).is_some_and(damage)
}

/// The facts of a record whose own cannot be read, as far as its first snapshot has them.
fn presumed(input: &Input) -> Result<RecordingHeader> {
    let snapshot = open(input)?.find_map(|event| match event {
        Ok(Event::Snapshot(s)) => Some(s),
        _ => None,
    });
    let s = snapshot.context("neither its beginning nor any snapshot can be read")?;
    Ok(RecordingHeader::new(env!("CARGO_PKG_VERSION"), s.attrs, s.start))
}

/// The figures that any of the records does not have. A record that cannot be read fails when it is added.
fn missing(o: &cli::Edit) -> Missing {
    let input = |path: &PathBuf| Input { path: path.clone(), skip_damaged: o.repair };
    let heads = o.files.iter().filter_map(|path| Head::read(&input(path)).ok());
    heads.fold(Missing::default(), |missing, head| missing.or(head.missing))
}

/// The facts of an edited record.
fn edited(facts: RecordingHeader, missing: Missing) -> RecordingHeader {
    let note = match facts.note.as_str() {
        "" => "edited".to_owned(),
        note => format!("{note}; edited"),
    };
    RecordingHeader { note, missing, ..facts }
}
