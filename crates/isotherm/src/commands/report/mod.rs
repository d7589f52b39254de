//! `isotherm report`.

mod accuracy;
pub mod output;
mod select;

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use isotherm_core::{Attribution, Snapshot, TargetId};
use isotherm_record::{Event, Facts, ReadError, Reader, TargetFact};
use isotherm_report::{
    AccessBuilder, AdviceBuilder, AdviceScope, Extent, Grid, GroupsBuilder, Options, Raw,
    RegionsBuilder, Shape, Summarizer, WssBuilder, access_text, advice_text, groups_text,
    heatmap_picture, json, raw_head_text, raw_text, regions_picture, regions_text, summary_text,
    terminal, wss_picture, wss_text,
};

use self::output::{Form, Output, print};
use super::open;
use crate::cli;
use crate::cli::{ReportKind, Selection};
use crate::words::say;

/// Makes the report asked for.
pub fn run(o: cli::Report) -> Result<ExitCode> {
    match o.kind {
        ReportKind::Summary(o) => summary(&o),
        ReportKind::Heatmap(o) => heatmap(&o),
        ReportKind::Wss(o) => wss(&o),
        ReportKind::Regions(o) => regions(&o),
        ReportKind::Access(o) => access(&o),
        ReportKind::Raw(o) => raw(&o),
        ReportKind::Advice(o) => advice(&o),
        ReportKind::Cgroups(o) => cgroups(&o),
        ReportKind::Accuracy(o) => accuracy::run(&o),
    }
}

fn summary(o: &cli::Summary) -> Result<ExitCode> {
    let mut summarizer = Summarizer::new(options(&o.selection)?);
    each_snapshot(&o.selection.input, true, |s| {
        summarizer.push(s);
        Ok(())
    })?;
    let summary = summarizer.finish()?;
    let text =
        if o.selection.json { json(&summary)? + "\n" } else { summary_text(&summary, o.top) };
    print(text.as_bytes())
}

fn heatmap(o: &cli::Heatmap) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let input = &o.selection.input;
    let mut extent = Extent::new(options(&o.selection)?);
    each_snapshot(input, true, |s| {
        extent.push(s);
        Ok(())
    })?;
    let in_text = output.form() == Form::Text;
    let shape = if in_text { output::terminal_shape() } else { Shape::picture() };
    let mut grid = Grid::new(extent, &shape)?;
    each_snapshot(input, false, |s| {
        grid.push(s);
        Ok(())
    })?;
    let map = grid.finish();
    output.write(&map, || terminal(&map, output::style()), || heatmap_picture(&map))
}

fn wss(o: &cli::Over) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let mut builder = WssBuilder::new(options(&o.selection)?);
    each_snapshot(&o.selection.input, true, |s| {
        builder.push(s);
        Ok(())
    })?;
    let wss = builder.finish(&o.percentiles)?;
    output.write(&wss, || wss_text(&wss, o.over_time), || wss_picture(&wss))
}

fn regions(o: &cli::Over) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let mut builder = RegionsBuilder::new(options(&o.selection)?);
    each_snapshot(&o.selection.input, true, |s| {
        builder.push(s);
        Ok(())
    })?;
    let regions = builder.finish(&o.percentiles)?;
    output.write(&regions, || regions_text(&regions, o.over_time), || regions_picture(&regions))
}

fn access(o: &cli::Access) -> Result<ExitCode> {
    let mut builder = AccessBuilder::new(options(&o.selection)?, o.choice());
    each_snapshot(&o.selection.input, true, |s| {
        builder.push(s);
        Ok(())
    })?;
    let access = builder.finish()?;
    let text = if o.selection.json { json(&access)? + "\n" } else { access_text(&access) };
    print(text.as_bytes())
}

fn advice(o: &cli::Advice) -> Result<ExitCode> {
    let input = &o.selection.input;
    let mut scope = AdviceScope::new(options(&o.selection)?);
    each_snapshot(input, true, |s| {
        scope.push(s);
        Ok(())
    })?;
    let mut builder = AdviceBuilder::new(scope, o.wishes())?;
    each_snapshot(input, false, |s| {
        builder.push(s);
        Ok(())
    })?;
    let advice = builder.finish();
    let text = if o.selection.json {
        json(&advice)?
            + "
"
    } else {
        advice_text(&advice, o.top)
    };
    print(text.as_bytes())
}

fn cgroups(o: &cli::Cgroups) -> Result<ExitCode> {
    let head = head(&o.selection.input)?;
    let options = select::options(&o.selection, head.facts.as_ref(), &head.targets)?;
    let mut firsts = head.attributions.into_iter();
    let mut builder = GroupsBuilder::new(options, o.by, o.every);
    each_event(open(&o.selection.input)?, true, |event| {
        match event {
            Event::Facts(_) => builder.begin(firsts.next().unwrap_or_default().into_values()),
            Event::Attribution(a) => builder.attribution(a),
            Event::Snapshot(s) => builder.push(s),
            _ => {}
        }
        Ok(())
    })?;
    let groups = builder.finish()?;
    let text = match o.selection.json {
        true => json(&groups)? + "\n",
        false => groups_text(&groups, o.top, o.every.is_some()),
    };
    print(text.as_bytes())
}

/// Written as it is read: a record may be bigger than memory.
fn raw(o: &cli::Raw) -> Result<ExitCode> {
    let as_json = o.selection.json;
    let mut raw = Raw::new(options(&o.selection)?);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let head = raw.head();
    let head = if as_json { json(&head)? + "\n" } else { raw_head_text(&head) };
    out.write_all(head.as_bytes())?;
    each_snapshot(&o.selection.input, true, |s| {
        let Some(s) = raw.snapshot(s) else { return Ok(()) };
        let text = if as_json { json(&s)? + "\n" } else { raw_text(&s) };
        Ok(out.write_all(text.as_bytes())?)
    })?;
    out.flush()?;
    raw.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Hands over each snapshot of the record. One that breaks off is shown as far as it goes.
fn each_snapshot(
    path: &Path,
    warn: bool,
    mut push: impl FnMut(&Arc<Snapshot>) -> Result<()>,
) -> Result<()> {
    each_event(open(path)?, warn, |event| match event {
        Event::Snapshot(s) => push(s),
        _ => Ok(()),
    })
}

fn each_event(
    reader: Reader,
    warn: bool,
    mut take: impl FnMut(&Event) -> Result<()>,
) -> Result<()> {
    for event in reader {
        match event {
            Ok(event) => take(&event)?,
            Err(torn @ ReadError::Torn { .. }) => {
                if warn {
                    say(format_args!("isotherm: {torn}"));
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Title, names of the targets and what to show, from the record's facts and the command line.
fn options(selection: &Selection) -> Result<Options> {
    let head = head(&selection.input)?;
    select::options(selection, head.facts.as_ref(), &head.targets)
}

/// What a record says of itself and its targets.
#[derive(Default)]
struct Head {
    facts: Option<Facts>,
    targets: Vec<TargetFact>,
    /// the first of each, by recording
    attributions: Vec<BTreeMap<TargetId, Attribution>>,
}

fn head(path: &Path) -> Result<Head> {
    let mut head = Head::default();
    each_event(open(path)?.without_snapshots(), false, |event| {
        match event {
            Event::Facts(f) => {
                head.facts = Some(f.clone());
                head.attributions.push(BTreeMap::new());
            }
            Event::Target(t) => head.targets.push(t.clone()),
            Event::Attribution(a) => {
                let first = head.attributions.last_mut();
                first.map(|first| first.entry(a.target).or_insert_with(|| a.clone()));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(head)
}
