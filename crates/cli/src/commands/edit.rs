//! `isotherm edit`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::output_file::keep_input;
use isotherm::reading::{self, Head, Input, Part, lost_text, open};
use isotherm_record::edit::{Edit, Rewriter};
use isotherm_record::{Facts, Writer};

use crate::cli;
use crate::log::say;

/// Writes a record of parts of others.
pub fn run(o: &cli::Edit) -> Result<ExitCode> {
    o.files.iter().try_for_each(|path| keep_input(&o.output, path))?;
    let mut rewriter = None;
    for path in &o.files {
        let input = Input { path: path.clone(), skip_damaged: o.repair };
        let part = Part { input, time: None, targets: o.target.clone() };
        let head = Head::read(&part.input)?;
        let targets = reading::options(&part, &head)?.filter.targets;
        let edit = Edit { time: o.time.clone(), addr: o.addr, targets, aggr: o.aggr };
        let rewriter = match &mut rewriter {
            Some(rewriter) => rewriter,
            none => {
                let name = || format!("{} has no facts of a recording", path.display());
                let facts = edited(head.facts.with_context(name)?);
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
    }
    let summary = rewriter.map(Rewriter::finish).transpose()?.unwrap_or_default();
    say(format_args!("wrote {} snapshots to {}", summary.snapshots, o.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// The facts of an edited record.
fn edited(facts: Facts) -> Facts {
    let note = match facts.note.as_str() {
        "" => "edited".to_owned(),
        note => format!("{note}; edited"),
    };
    Facts { note, ..facts }
}
