//! `isotherm report`.

mod accuracy;
mod code;
pub mod output;

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use isotherm::UsageError;
use isotherm::reading::{self, Head, Input, RecordSelection, each_shown, each_snapshot};
use isotherm_core::Snapshot;
use isotherm_record::Event;
use isotherm_report::{
    AccessBuilder, AdviceBuilder, AdviceScope, By, Choice, Extent, Grid, GridSize, GroupsBuilder,
    Need, NeedBuilder, Options, Raw, RegionsBuilder, Summarizer, WssBuilder, access_text,
    advice_text, groups_text, heatmap_picture, json, need_picture, need_text, raw_head_text,
    raw_text, regions_picture, regions_text, summary_text, terminal, wss_picture, wss_text,
};

use self::output::{Output, OutputFormat, show};
use crate::cli;
use crate::cli::{NeedAsked, ReportKind, Selection};

/// Makes the requested report.
pub fn run(o: cli::Report) -> Result<ExitCode> {
    match o.kind {
        ReportKind::Summary(o) => summary(&o),
        ReportKind::Heatmap(o) => heatmap(&o),
        ReportKind::Wss(o) => wss(&o),
        ReportKind::Regions(o) => regions(&o),
        ReportKind::Access(o) => access(&o.selection, o.choice()),
        ReportKind::Raw(o) => raw(&o),
        ReportKind::Need(o) => need(&o),
        ReportKind::Advice(o) => advice(&o),
        ReportKind::Cgroups(o) => cgroups(&o),
        ReportKind::Code(o) => code::run(&o),
        ReportKind::Accuracy(o) => accuracy::run(&o),
    }
}

fn summary(o: &cli::Summary) -> Result<ExitCode> {
    let mut summarizer = Summarizer::new(options(&o.selection)?);
    push_each(&o.selection.part.input.input(), true, |s| summarizer.push(s))?;
    let summary = summarizer.finish()?;
    show(o.selection.shown.json, &summary, || summary_text(&summary, o.top))
}

fn heatmap(o: &cli::Heatmap) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let input = &o.selection.part.input.input();
    let mut extent = Extent::new(options(&o.selection)?);
    push_each(input, true, |s| extent.push(s))?;
    let in_text = output.form() == OutputFormat::Text;
    let shape = if in_text { output::terminal_shape() } else { GridSize::picture() };
    let mut grid = Grid::new(extent, &shape)?;
    push_each(input, false, |s| grid.push(s))?;
    let map = grid.finish();
    output.write(&map, || terminal(&map, output::style()), || heatmap_picture(&map))
}

fn wss(o: &cli::Over) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let mut builder = WssBuilder::new(options(&o.selection)?);
    push_each(&o.selection.part.input.input(), true, |s| builder.push(s))?;
    let wss = builder.finish(&o.percentiles)?;
    output.write(&wss, || wss_text(&wss, o.over_time), || wss_picture(&wss))
}

fn regions(o: &cli::Over) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let mut builder = RegionsBuilder::new(options(&o.selection)?);
    push_each(&o.selection.part.input.input(), true, |s| builder.push(s))?;
    let regions = builder.finish(&o.percentiles)?;
    output.write(&regions, || regions_text(&regions, o.over_time), || regions_picture(&regions))
}

/// Prints the regions of one snapshot.
pub fn access(selection: &Selection, choice: Choice) -> Result<ExitCode> {
    let mut builder = AccessBuilder::new(options(selection)?, choice);
    push_each(&selection.part.input.input(), true, |s| builder.push(s))?;
    let access = builder.finish()?;
    show(selection.shown.json, &access, || access_text(&access))
}

fn need(o: &cli::Need) -> Result<ExitCode> {
    let output = Output::of(o.output.as_deref(), &o.part.input.path, o.json)?;
    let need = need_figures(&o.part.part(), &o.asked)?;
    output.write(&need, || need_text(&need), || need_picture(&need))
}

/// Prints how much memory the targets of a record need.
pub fn need_of(path: &Path, asked: NeedAsked, as_json: bool) -> Result<ExitCode> {
    let need = need_figures(&cli::Part::all(path).part(), &asked)?;
    show(as_json, &need, || need_text(&need))
}

fn need_figures(part: &RecordSelection, asked: &NeedAsked) -> Result<Need> {
    let head = Head::read(&part.input)?;
    let mut builder = NeedBuilder::new(reading::options(part, &head)?, asked.objective());
    if asked.by == By::Cgroup {
        builder.by_cgroup(head.attributions.iter().flat_map(BTreeMap::values));
    }
    builder.try_sizes(&asked.page_cache);
    each_shown(&part.input, true, |event| {
        match event {
            Event::Trace(trace) => builder.trace(trace),
            Event::Snapshot(s) => builder.push(s),
            _ => {}
        }
        anyhow::Ok(())
    })?;
    let need = builder.finish()?;
    if need.cache.is_none() && !asked.page_cache.is_empty() {
        let text = "--page-cache is about files: record files with --reuse";
        return Err(UsageError::new(text).into());
    }
    Ok(need)
}

fn advice(o: &cli::Advice) -> Result<ExitCode> {
    let input = &o.selection.part.input.input();
    let mut scope = AdviceScope::new(options(&o.selection)?);
    push_each(input, true, |s| scope.push(s))?;
    let mut builder = AdviceBuilder::new(scope, o.wishes())?;
    push_each(input, false, |s| builder.push(s))?;
    let advice = builder.finish();
    show(o.selection.shown.json, &advice, || advice_text(&advice, o.top))
}

fn cgroups(o: &cli::Cgroups) -> Result<ExitCode> {
    let head = Head::read(&o.selection.part.input.input())?;
    let options = options_with(&o.selection, &head)?;
    let mut firsts = head.attributions.into_iter();
    let mut builder = GroupsBuilder::new(options, o.by, o.every);
    each_shown(&o.selection.part.input.input(), true, |event| {
        match event {
            Event::Header(_) => builder.begin(firsts.next().unwrap_or_default().into_values()),
            Event::Attribution(a) => builder.attribution(a),
            Event::Snapshot(s) => builder.push(s),
            _ => {}
        }
        anyhow::Ok(())
    })?;
    let groups = builder.finish()?;
    show(o.selection.shown.json, &groups, || groups_text(&groups, o.top, o.every.is_some()))
}

/// Writes while it reads, because a record may be larger than memory.
fn raw(o: &cli::Raw) -> Result<ExitCode> {
    let as_json = o.selection.shown.json;
    let mut raw = Raw::new(options(&o.selection)?);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let head = raw.head();
    let head = if as_json { json(&head)? + "\n" } else { raw_head_text(&head) };
    out.write_all(head.as_bytes())?;
    each_snapshot(&o.selection.part.input.input(), true, |s| {
        let Some(s) = raw.snapshot(s) else { return anyhow::Ok(()) };
        let text = if as_json { json(&s)? + "\n" } else { raw_text(&s) };
        Ok(out.write_all(text.as_bytes())?)
    })?;
    out.flush()?;
    raw.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Calls `push` for each snapshot. `warn`: whether to print why the record is incomplete.
fn push_each(input: &Input, warn: bool, mut push: impl FnMut(&Arc<Snapshot>)) -> Result<()> {
    each_snapshot(input, warn, |s| {
        push(s);
        Ok(())
    })
}

/// Title, names of the targets and selection, from the record's facts and the command line.
fn options(selection: &Selection) -> Result<Options> {
    options_with(selection, &Head::read(&selection.part.input.input())?)
}

/// The options of a report of memory.
fn options_with(selection: &Selection, head: &Head) -> Result<Options> {
    let mut options = reading::options(&selection.part.part(), head)?;
    options.filter.addr = selection.shown.addr;
    options.thresholds = selection.shown.heat.thresholds();
    Ok(options)
}
