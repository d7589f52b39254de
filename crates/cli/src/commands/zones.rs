//! `isotherm system zones`: the zones of the real machine.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm::follow::{StartedCommand, resolve};
use isotherm::stop::Stop;
use isotherm::zones::{Change, State, ZoneSample, remarks, text};
use isotherm_linux::sys;
use isotherm_report::json;
use serde::Serialize;

use crate::cli::{UsageError, Zones};
use crate::log::say;

/// Time between two checks for signals.
const WAKE: Duration = Duration::from_millis(50);
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
        let state = State::new(&first);
        let remarks = remarks::of_state(&state);
        let shown = ZonesOutput { schema_version: 1, state: Some(&state), change: None, remarks };
        shown.print(o.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    around(o, &first)
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
    let remarks = remarks::of_change(&change);
    ZonesOutput { schema_version: 1, state: None, change: Some(&change), remarks }.print(o.json)?;
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
        while sys::monotonic() < next && !stop.is_over() {
            std::thread::sleep(WAKE.min(next.since(sys::monotonic())));
        }
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
        let mut remarks = remarks::of_change(&change);
        remarks.extend(remarks::of_state(&state));
        let shown = ZonesOutput {
            schema_version: 1,
            state: o.json.then_some(&state),
            change: Some(&change),
            remarks,
        };
        shown.print(o.json)?;
        last = now;
    }
}

/// Prints the files that can no longer be read.
fn say_missing(now: &ZoneSample, last: &ZoneSample) {
    let new = now.missing.iter().filter(|what| !last.missing.contains(what));
    new.for_each(|what| say(format_args!("isotherm: {what}")));
}

/// The JSON output.
#[derive(Serialize)]
struct ZonesOutput<'a> {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a Change>,
    remarks: Vec<String>,
}

impl ZonesOutput<'_> {
    fn print(&self, as_json: bool) -> Result<()> {
        let text = if as_json { json(self)? + "\n" } else { self.text() };
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.context("cannot write to standard output")
    }

    fn text(&self) -> String {
        let parts = [self.state.map(text::state), self.change.map(text::change)];
        let figures: String = parts.into_iter().flatten().collect();
        figures + "\n" + &text::remarks(&self.remarks)
    }
}
