//! `isotherm files`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm::page_cache::{By, CacheReader, CacheWatch, FileScope, FilesOutput, RowOrder};
use isotherm::stop::Stop;
use isotherm_linux::page_cache::ReadCounter;
use isotherm_linux::sys;

use crate::cli::{Files, UsageError};
use crate::commands::report::output::show;
use crate::log::say;

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
    let scope = FileScope {
        paths: o.paths.clone(),
        mount: o.mount.clone(),
        cgroups: o.cgroup.iter().cloned().collect(),
    };
    let reader = CacheReader::open(scope)?;
    if let Some(reason) = reader.why_not_bpf() {
        say(format_args!(
            "isotherm: counting by cachestat and mincore, which is slower and has no marks of accesses: {reason}"
        ));
    }
    let order = RowOrder { by: o.by, depth: o.depth, sort: o.sort, limit: o.limit };
    let mut watch = CacheWatch::new(reader, order, o.watch.then_some(o.budget));
    let mut counter = o.reads.and_then(|_| counter());
    let stop = Stop::at_signals()?;
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    loop {
        let begin = sys::monotonic();
        let counted = counter.as_mut().zip(o.reads);
        let reads =
            counted.map(|(counter, time)| counter.during(|| stop.sleep_until(begin + time)));
        print(o, &watch.read(reads.transpose()?.as_ref())?)?;
        let next = begin + o.interval;
        if o.watch {
            stop.sleep_until(next);
        }
        if !o.watch || stop.is_over() {
            return Ok(ExitCode::SUCCESS);
        }
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

fn print(o: &Files, shown: &FilesOutput<'_>) -> Result<()> {
    let is_live = o.watch && !o.json && std::io::stdout().is_terminal();
    let clear = if is_live { CLEAR } else { "" };
    show(o.json, shown, || clear.to_owned() + &shown.text(o.reads.is_some())).map(drop)
}
