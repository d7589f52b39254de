//! `isotherm files`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm::page_cache::{
    By, CacheReader, CacheWatch, FileScope, FilesOutput, Observed, RowOrder, SortBy,
};
use isotherm::stop::Stop;
use isotherm::watch::FileHeatWatch;
use isotherm::words::chain;
use isotherm_linux::page_cache::ReadCounter;
use isotherm_linux::sys;

use crate::cli::{Files, UsageError};
use crate::commands::report::output::show;
use crate::log::say;

/// The minimum of `--interval` and `--reads`. With less, the command would mostly observe itself.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum of `--heat`: ages begin after an interval, cold memory is 5 s old, and ages may grow a little more slowly
/// than time passes.
const MIN_HEAT: Duration = Duration::from_secs(8);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the contents of the page cache.
pub fn run(o: &Files) -> Result<ExitCode> {
    if o.depth.is_some() && o.by != By::Dir {
        return Err(UsageError::new("--depth is about folders: give --by dir with it").into());
    }
    if matches!(o.sort, SortBy::Hot | SortBy::Cold) && o.heat.is_none() {
        return Err(UsageError::new("heat is known after watching: give --heat 10s with it").into());
    }
    if o.heat.is_some_and(|time| time < MIN_HEAT) {
        let text = "make --heat 8s or longer: files are cold if nobody has accessed them for 5 s";
        return Err(UsageError::new(text).into());
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
    let reader = CacheReader::open(scope.clone())?;
    if let Some(reason) = reader.why_not_bpf() {
        say(format_args!(
            "isotherm: counting by cachestat and mincore, which is slower and has no marks of accesses: {reason}"
        ));
    }
    let order = RowOrder { by: o.by, depth: o.depth, sort: o.sort, limit: o.limit };
    let mut watch = CacheWatch::new(reader, order, o.watch.then_some(o.budget));
    let mut counter = o.reads.and_then(|_| known("reads are", ReadCounter::load()));
    let mut heat = o.heat.and_then(|_| known("heat is", FileHeatWatch::open(scope)));
    let stop = Stop::at_signals()?;
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    let wait = |until, heat: &mut Option<FileHeatWatch>| match heat {
        Some(heat) => heat.until(until, &stop),
        None => {
            stop.sleep_until(until);
            Ok(())
        }
    };
    if let Some(time) = o.heat.filter(|_| heat.is_some()) {
        wait(sys::monotonic() + time, &mut heat)?;
    }
    loop {
        let begin = sys::monotonic();
        let mut waited = Ok(());
        let counted = counter.as_mut().zip(o.reads);
        let reads = counted
            .map(|(counter, time)| counter.during(|| waited = wait(begin + time, &mut heat)))
            .transpose()?;
        waited?;
        let heats = heat.as_mut().map(FileHeatWatch::heat);
        print(o, &watch.read(Observed { reads: reads.as_ref(), heat: heats.as_ref() })?)?;
        if o.watch {
            wait(begin + o.interval, &mut heat)?;
        }
        if !o.watch || stop.is_over() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The result. Without it, `what` is unknown, for the stated reason.
fn known<T>(what: &str, result: Result<T, impl std::error::Error + 'static>) -> Option<T> {
    result.map_err(|e| say(format_args!("isotherm: {what} unknown: {}", chain(&e)))).ok()
}

fn print(o: &Files, shown: &FilesOutput<'_>) -> Result<()> {
    let is_live = o.watch && !o.json && std::io::stdout().is_terminal();
    let clear = if is_live { CLEAR } else { "" };
    show(o.json, shown, || clear.to_owned() + &shown.text(o.reads.is_some(), o.heat.is_some()))
        .map(drop)
}
