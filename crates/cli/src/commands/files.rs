//! `isotherm files`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm::page_cache::{By, CacheScan, Reader, Row, Scope, rows, text, total};
use isotherm::stop::Stop;
use isotherm_core::Nanos;
use isotherm_linux::page_cache::ReadCounter;
use isotherm_linux::sys;
use isotherm_report::json;
use serde::Serialize;

use crate::cli::{Files, UsageError};
use crate::log::say;

/// Time between two checks for signals.
const WAKE: Duration = Duration::from_millis(50);
/// The minimum of `--interval` and `--reads`. With less, the command would mostly observe itself.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the contents of the page cache.
pub fn run(o: &Files) -> Result<ExitCode> {
    if o.depth.is_some() && o.by != By::Dir {
        return Err(UsageError::new("--depth is about folders: give --by dir with it").into());
    }
    for (name, time) in [("--interval", o.watch.then_some(o.interval)), ("--reads", o.reads)] {
        if time.is_some_and(|time| time < MIN_INTERVAL) {
            return Err(UsageError::new(format!("make {name} {MIN_INTERVAL:?} or longer")).into());
        }
    }
    let scope = Scope {
        paths: o.paths.clone(),
        mount: o.mount.clone(),
        cgroups: o.cgroup.iter().cloned().collect(),
    };
    let mut reader = Reader::open(scope)?;
    if let Some(reason) = reader.why_not_bpf() {
        say(format_args!(
            "isotherm: counting by cachestat and mincore, which is slower and has no marks of accesses: {reason}"
        ));
    }
    let mut counter = o.reads.and_then(|_| counter());
    let stop = Stop::at_signals()?;
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    loop {
        let begin = sys::monotonic();
        let counted = counter.as_mut().zip(o.reads);
        let reads = counted.map(|(counter, time)| counter.during(|| sleep(begin + time, &stop)));
        let reading = reader.read(o.by == By::Process, reads.transpose()?.as_ref())?;
        print(o, &reading)?;
        let next = begin + o.interval;
        if o.watch {
            sleep(next, &stop);
        }
        if !o.watch || stop.is_over() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Sleeps until then, or until the command must end.
fn sleep(until: Nanos, stop: &Stop) {
    while sys::monotonic() < until && !stop.is_over() {
        std::thread::sleep(WAKE.min(until.since(sys::monotonic())));
    }
}

/// Without it, reads are unknown.
fn counter() -> Option<ReadCounter> {
    match ReadCounter::load() {
        Ok(counter) => Some(counter),
        Err(e) => {
            say(format_args!("isotherm: reads are unknown: {e}"));
            None
        }
    }
}

/// The JSON output.
#[derive(Serialize)]
struct FilesOutput<'a> {
    schema_version: u32,
    by: By,
    total: &'a Row<'a>,
    rows: &'a [Row<'a>],
    nr_rows: usize,
    remarks: &'a [String],
}

fn print(o: &Files, reading: &CacheScan) -> Result<()> {
    let rows = rows(reading, o.by, o.depth, o.sort);
    let total = total(reading);
    let mut out = std::io::stdout().lock();
    let text = if o.json {
        let shown = rows.get(..o.limit).unwrap_or(&rows);
        let nr_rows = rows.len();
        let remarks = &reading.remarks;
        let output = FilesOutput {
            schema_version: 1,
            by: o.by,
            total: &total,
            rows: shown,
            nr_rows,
            remarks,
        };
        json(&output)? + "\n"
    } else {
        let clear = if o.watch && out.is_terminal() { CLEAR } else { "" };
        let table = text::table(&total, &rows, o.by, o.limit, o.reads.is_some());
        clear.to_owned() + &table + &text::remarks(&total, o.by, reading, o.reads.is_some())
    };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("cannot write to standard output")
}
