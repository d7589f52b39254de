//! `isotherm system zones`: the zones of the real machine.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm::follow::{StartedCommand, resolve};
use isotherm::stop::Stop;
use isotherm::zones::{Change, State, ZoneSample, ZonesOutput};
use isotherm_linux::sys;

use crate::cli::{UsageError, Zones};
use crate::commands::report::output::show;
use crate::log::say;

/// Tolerance at the end, so that an interval that ends with `--duration` counts.
const GRACE: Duration = Duration::from_millis(50);
/// The minimum of `--interval`. With less, the command would mostly observe itself.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Prints the zones, or their changes.
pub fn run(o: &Zones) -> Result<ExitCode> {
    if o.interval < MIN_INTERVAL {
        return Err(UsageError::new(format!("make --interval {MIN_INTERVAL:?} or longer")).into());
    }
    let first = ZoneSample::take(root())?;
    first.missing.iter().for_each(|what| say(format_args!("isotherm: {what}")));
    if o.watch {
        return watch(o, first);
    }
    if o.command.is_empty() {
        return print(o, &ZonesOutput::of_state(&State::new(&first)));
    }
    around(o, &first)
}

fn print(o: &Zones, shown: &ZonesOutput<'_>) -> Result<ExitCode> {
    show(o.json, shown, || shown.text())
}

fn root() -> &'static Path {
    Path::new("/")
}

/// Runs the command, and returns its exit status.
fn around(o: &Zones, first: &ZoneSample) -> Result<ExitCode> {
    let stop = Stop::at_signals()?;
    let Some(program) = resolve(&o.command)? else { return Ok(ExitCode::SUCCESS) };
    let status = StartedCommand::spawn(&program, &o.command, &[])?.end(&stop)?;
    let change = Change::between(first, &ZoneSample::take(root())?);
    print(o, &ZonesOutput::of_change(&change))?;
    Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn watch(o: &Zones, mut last: ZoneSample) -> Result<ExitCode> {
    if o.duration.is_some_and(|d| d < o.interval) {
        return Err(UsageError::new("--duration is shorter than --interval").into());
    }
    let stop = Stop::at_signals()?.at(o.duration.map(|d| last.at + d + GRACE));
    let mut next = last.at;
    loop {
        next = next + o.interval;
        stop.sleep_until(next);
        // An incomplete interval is not printed.
        if sys::monotonic() < next {
            return Ok(ExitCode::SUCCESS);
        }
        let now = ZoneSample::take(root())?;
        // Intervals that were missed, as others had the CPU, are one long interval.
        while next + o.interval <= now.at {
            next = next + o.interval;
        }
        say_missing(&now, &last);
        let change = Change::between(&last, &now);
        let state = State::new(&now);
        print(o, &ZonesOutput::of_both(&state, &change, o.json))?;
        last = now;
    }
}

/// Prints the files that can no longer be read.
fn say_missing(now: &ZoneSample, last: &ZoneSample) {
    let new = now.missing.iter().filter(|what| !last.missing.contains(what));
    new.for_each(|what| say(format_args!("isotherm: {what}")));
}
