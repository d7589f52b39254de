//! `isotherm report`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use isotherm_core::{Snapshot, TargetId};
use isotherm_record::{Event, Facts, ReadError, TargetFact};
use isotherm_report::{
    Extent, Filter, Grid, Options, Shape, Style, Summarizer, json, png, summary_text, terminal,
};

use super::{create, open};
use crate::cli;
use crate::cli::{ReportKind, Selection};
use crate::words::say;

/// Makes the report asked for.
pub fn run(o: cli::Report) -> Result<ExitCode> {
    match o.kind {
        ReportKind::Summary(o) => summary(&o),
        ReportKind::Heatmap(o) => heatmap(&o),
    }
}

fn summary(o: &cli::Summary) -> Result<ExitCode> {
    let mut summarizer = Summarizer::new(options(&o.selection)?);
    each_snapshot(&o.selection.input, true, |s| summarizer.push(s))?;
    let summary = summarizer.finish()?;
    let text =
        if o.selection.json { json(&summary)? + "\n" } else { summary_text(&summary, o.top) };
    print(text.as_bytes())
}

fn heatmap(o: &cli::Heatmap) -> Result<ExitCode> {
    let input = &o.selection.input;
    let mut extent = Extent::new(options(&o.selection)?);
    each_snapshot(input, true, |s| extent.push(s))?;
    let to_terminal = match &o.output {
        None => !o.selection.json,
        Some(path) => path == Path::new("-") && std::io::stdout().is_terminal(),
    };
    let shape = if to_terminal { terminal_shape() } else { Shape::png() };
    let mut grid = Grid::new(extent, &shape)?;
    each_snapshot(input, false, |s| grid.push(s))?;
    let map = grid.finish();
    let drawn = match () {
        () if o.selection.json => (json(&map)? + "\n").into_bytes(),
        () if to_terminal => terminal(&map, style()).into_bytes(),
        () => png(&map)?,
    };
    let Some(path) = o.output.as_deref().filter(|path| *path != Path::new("-")) else {
        return print(&drawn);
    };
    let written = create(path, input)?.write_all(&drawn);
    written.with_context(|| format!("cannot write {}", path.display()))?;
    say(format_args!("wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn print(bytes: &[u8]) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Hands over each snapshot of the record. One that breaks off is shown as far as it goes.
fn each_snapshot(path: &Path, warn: bool, mut push: impl FnMut(&Snapshot)) -> Result<()> {
    each_event(path, warn, |event| {
        if let Event::Snapshot(s) = event {
            push(&Arc::clone(s));
        }
    })
}

fn each_event(path: &Path, warn: bool, mut take: impl FnMut(&Event)) -> Result<()> {
    for event in open(path)? {
        match event {
            Ok(event) => take(&event),
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
    let (mut facts, mut targets) = (None, Vec::new());
    each_event(&selection.input, false, |event| match event {
        Event::Facts(f) => facts = Some(f.clone()),
        Event::Target(t) => targets.push(t.clone()),
        _ => {}
    })?;
    Ok(Options {
        title: title(facts.as_ref(), &targets),
        filter: Filter { time: selection.time.clone(), addr: selection.addr },
        thresholds: selection.thresholds(),
        labels: labels(&targets),
    })
}

fn title(facts: Option<&Facts>, targets: &[TargetFact]) -> String {
    let first = targets.first().map_or("a process", |t| program(&t.command));
    let count = targets.iter().map(|t| t.id).collect::<std::collections::BTreeSet<_>>().len();
    let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    let on = facts.map(|f| format!(" on {}, Linux {}", f.host, f.kernel)).unwrap_or_default();
    format!("{first}{others}{on}")
}

fn labels(targets: &[TargetFact]) -> BTreeMap<TargetId, String> {
    let label = |t: &TargetFact| match t.pid {
        Some(pid) => format!("{} (pid {pid})", program(&t.command)),
        None => program(&t.command).to_owned(),
    };
    targets.iter().map(|t| (t.id, label(t))).collect()
}

/// The name of the program in a command line: `/usr/bin/redis-server *:0` is `redis-server`.
fn program(command: &str) -> &str {
    let word = command.split_whitespace().next().unwrap_or(command);
    word.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(word)
}

fn terminal_shape() -> Shape {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let size = size.filter(|s| s.ws_col > 0 && s.ws_row > 0);
    let (columns, rows) = size.map_or((100, 40), |s| (s.ws_col.into(), s.ws_row.into()));
    // A line is left for the prompt.
    Shape::terminal(columns, rows - 1)
}

fn style() -> Style {
    let var = |name| std::env::var(name).unwrap_or_default();
    if !std::io::stdout().is_terminal() || !var("NO_COLOR").is_empty() || var("TERM") == "dumb" {
        Style::Plain
    } else if ["truecolor", "24bit"].contains(&var("COLORTERM").as_str()) {
        Style::TrueColor
    } else {
        Style::Ansi256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs() {
        assert_eq!(program("/usr/bin/redis-server *:0"), "redis-server");
        assert_eq!(program("postgres: writer process"), "postgres:");
        assert_eq!(program("/"), "/");
    }
}
