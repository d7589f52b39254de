//! `isotherm report`.

mod accuracy;
mod code;
pub mod output;
pub mod play;
mod select;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use isotherm_core::{Attribution, Nanos, Snapshot, TargetId};
use isotherm_record::{Event, Facts, Lost, ReadError, Reader, TargetFact};
use isotherm_report::{
    AccessBuilder, AdviceBuilder, AdviceScope, By, Choice, Extent, Gap, Grid, GroupsBuilder, Need,
    NeedBuilder, Options, Raw, RegionsBuilder, Shape, Summarizer, WssBuilder, access_text,
    advice_text, groups_text, heatmap_picture, json, need_picture, need_text, raw_head_text,
    raw_text, regions_picture, regions_text, summary_text, terminal, wss_picture, wss_text,
};

use self::output::{Form, Output, print};
use super::open;
use crate::cli;
use crate::cli::{Input, NeedAsked, Part, ReportKind, Selection};
use crate::log::say;

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
    each_snapshot(&o.selection.part.input, true, |s| {
        summarizer.push(s);
        Ok(())
    })?;
    let summary = summarizer.finish()?;
    let text =
        if o.selection.shown.json { json(&summary)? + "\n" } else { summary_text(&summary, o.top) };
    print(text.as_bytes())
}

fn heatmap(o: &cli::Heatmap) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let input = &o.selection.part.input;
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
    each_snapshot(&o.selection.part.input, true, |s| {
        builder.push(s);
        Ok(())
    })?;
    let wss = builder.finish(&o.percentiles)?;
    output.write(&wss, || wss_text(&wss, o.over_time), || wss_picture(&wss))
}

fn regions(o: &cli::Over) -> Result<ExitCode> {
    let output = Output::new(o.output.as_deref(), &o.selection)?;
    let mut builder = RegionsBuilder::new(options(&o.selection)?);
    each_snapshot(&o.selection.part.input, true, |s| {
        builder.push(s);
        Ok(())
    })?;
    let regions = builder.finish(&o.percentiles)?;
    output.write(&regions, || regions_text(&regions, o.over_time), || regions_picture(&regions))
}

/// Prints the regions of one snapshot.
pub fn access(selection: &Selection, choice: Choice) -> Result<ExitCode> {
    let mut builder = AccessBuilder::new(options(selection)?, choice);
    each_snapshot(&selection.part.input, true, |s| {
        builder.push(s);
        Ok(())
    })?;
    let access = builder.finish()?;
    let text = if selection.shown.json { json(&access)? + "\n" } else { access_text(&access) };
    print(text.as_bytes())
}

fn need(o: &cli::Need) -> Result<ExitCode> {
    let output = Output::of(o.output.as_deref(), &o.part.input.path, o.json)?;
    let need = need_figures(&o.part, o.asked)?;
    output.write(&need, || need_text(&need), || need_picture(&need))
}

/// Prints how much memory the targets of a record need.
pub fn need_of(path: &Path, asked: NeedAsked, as_json: bool) -> Result<ExitCode> {
    let need = need_figures(&Part::all(path), asked)?;
    let text = if as_json { json(&need)? + "\n" } else { need_text(&need) };
    print(text.as_bytes())
}

fn need_figures(part: &Part, asked: NeedAsked) -> Result<Need> {
    let head = head(&part.input)?;
    let mut builder = NeedBuilder::new(select::part(part, &head)?, asked.objective());
    if asked.by == By::Cgroup {
        builder.by_cgroup(head.attributions.iter().flat_map(BTreeMap::values));
    }
    each_snapshot(&part.input, true, |s| {
        builder.push(s);
        Ok(())
    })?;
    Ok(builder.finish()?)
}

fn advice(o: &cli::Advice) -> Result<ExitCode> {
    let input = &o.selection.part.input;
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
    let text = if o.selection.shown.json {
        json(&advice)?
            + "
"
    } else {
        advice_text(&advice, o.top)
    };
    print(text.as_bytes())
}

fn cgroups(o: &cli::Cgroups) -> Result<ExitCode> {
    let head = head(&o.selection.part.input)?;
    let options = select::options(&o.selection, &head)?;
    let mut firsts = head.attributions.into_iter();
    let mut builder = GroupsBuilder::new(options, o.by, o.every);
    let torn = each_event(open(&o.selection.part.input)?, |event, _| {
        match event {
            Event::Facts(_) => builder.begin(firsts.next().unwrap_or_default().into_values()),
            Event::Attribution(a) => builder.attribution(a),
            Event::Snapshot(s) => builder.push(s),
            _ => {}
        }
        Ok(())
    })?;
    if let Some(torn) = torn {
        say(format_args!("isotherm: {torn}"));
    }
    let groups = builder.finish()?;
    let text = match o.selection.shown.json {
        true => json(&groups)? + "\n",
        false => groups_text(&groups, o.top, o.every.is_some()),
    };
    print(text.as_bytes())
}

/// Writes while it reads, because a record may be larger than memory.
fn raw(o: &cli::Raw) -> Result<ExitCode> {
    let as_json = o.selection.shown.json;
    let mut raw = Raw::new(options(&o.selection)?);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let head = raw.head();
    let head = if as_json { json(&head)? + "\n" } else { raw_head_text(&head) };
    out.write_all(head.as_bytes())?;
    each_snapshot(&o.selection.part.input, true, |s| {
        let Some(s) = raw.snapshot(s) else { return Ok(()) };
        let text = if as_json { json(&s)? + "\n" } else { raw_text(&s) };
        Ok(out.write_all(text.as_bytes())?)
    })?;
    out.flush()?;
    raw.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Calls `push` for each snapshot. An incomplete record is shown as far as it goes.
fn each_snapshot(
    input: &Input,
    warn: bool,
    mut push: impl FnMut(&Arc<Snapshot>) -> Result<()>,
) -> Result<()> {
    let mut any = false;
    let mut lost = Lost::default();
    let torn = each_event(open(input)?, |event, skipped| {
        lost = skipped;
        match event {
            Event::Snapshot(s) => {
                any = true;
                push(s)
            }
            _ => Ok(()),
        }
    })?;
    if !any && lost.places > 0 {
        bail!(
            "no snapshot of the record can be read, because it is damaged: {} are missing; isotherm record \
             --check reports where",
            lost.snapshots
        );
    }
    match torn {
        Some(torn) if !any => {
            Err(anyhow::Error::from(torn).context("there is no snapshot to show"))
        }
        Some(torn) if warn => {
            say(format_args!("isotherm: {torn}"));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Calls `take` for each event, with the losses before it. Returns the reason if the record is
/// incomplete.
fn each_event(
    mut reader: Reader,
    mut take: impl FnMut(&Event, Lost) -> Result<()>,
) -> Result<Option<ReadError>> {
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => take(&event, reader.lost())?,
            Err(torn @ ReadError::Torn { .. }) => return Ok(Some(torn)),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

/// Title, names of the targets and selection, from the record's facts and the command line.
fn options(selection: &Selection) -> Result<Options> {
    select::options(selection, &head(&selection.part.input)?)
}

/// The facts of a record, and the selected targets; `None` are all.
pub fn targets(part: &Part) -> Result<(Option<Facts>, Option<BTreeSet<TargetId>>)> {
    let head = head(&part.input)?;
    let targets = select::part(part, &head)?.filter.targets;
    Ok((head.facts, targets))
}

/// The facts of a record about itself and its targets.
#[derive(Default)]
struct Head {
    facts: Option<Facts>,
    targets: Vec<TargetFact>,
    /// the first attribution of each target, by recording
    attributions: Vec<BTreeMap<TargetId, Attribution>>,
    /// the parts that cannot be read
    gaps: Vec<Gap>,
}

/// Whether two facts are of the same target. In the next recording of a record, a number may stand
/// for another process.
fn is_same(one: &TargetFact, other: &TargetFact) -> bool {
    (one.id, one.pid) == (other.id, other.pid)
}

fn head(input: &Input) -> Result<Head> {
    let mut head = Head::default();
    let mut gaps = Gaps::default();
    let reader = open(input)?;
    // The snapshots around a gap give its time.
    let reader = if input.skip_damaged { reader } else { reader.without_snapshots() };
    each_event(reader, |event, lost| {
        match event {
            Event::Facts(f) => {
                head.facts = Some(f.clone());
                head.attributions.push(BTreeMap::new());
            }
            // A second fact means that the target has become another program: the last name
            // counts.
            Event::Target(t) => match head.targets.iter_mut().find(|known| is_same(known, t)) {
                Some(known) => known.clone_from(t),
                None => head.targets.push(t.clone()),
            },
            Event::Attribution(a) => {
                let first = head.attributions.last_mut();
                first.map(|first| first.entry(a.target).or_insert_with(|| a.clone()));
            }
            Event::Snapshot(s) => gaps.snapshot(s, lost),
            Event::End(_) => gaps.end(lost),
            Event::Mappings { .. } | Event::Code { .. } | Event::Fault(_) => {}
        }
        Ok(())
    })?;
    head.gaps = gaps.found;
    Ok(head)
}

/// Finds gaps.
#[derive(Default)]
struct Gaps {
    found: Vec<Gap>,
    /// begin of the first snapshot, and end of the last one
    span: Option<(Nanos, Nanos)>,
    /// the losses before the first snapshot
    lost: Lost,
}

impl Gaps {
    fn snapshot(&mut self, s: &Snapshot, lost: Lost) {
        let (begin, end) = self.span.unwrap_or((s.start, s.start));
        self.add(end.since(begin)..s.start.since(begin), lost);
        self.span = Some((begin, s.end));
    }

    /// Adds the losses after the last snapshot.
    fn end(&mut self, lost: Lost) {
        let at = self.span.map_or(Duration::ZERO, |(begin, end)| end.since(begin));
        self.add(at..at, lost);
    }

    /// Adds a gap, if the lost bytes held a snapshot.
    fn add(&mut self, time: Range<Duration>, lost: Lost) {
        let snapshots = lost.snapshots - self.lost.snapshots.min(lost.snapshots);
        if lost.places > self.lost.places && (snapshots > 0 || !time.is_empty()) {
            self.found.push(Gap { time, snapshots });
            self.lost = lost;
        }
    }
}
