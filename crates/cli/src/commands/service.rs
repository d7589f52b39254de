//! `isotherm service`: the commands that control a running service.

use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::control::{Attributes, ControlError, Request, ask, say_to, status_text};
use isotherm::functions::name_refaults;
use isotherm::schemes::SchemeSyntax;
use isotherm::text_file::text_of;

use super::report::output::print;
use crate::cli::{
    Commit, Control, Recording, RecordingTask, ServiceTask, SetAttributes, SetTargets, Status,
};

/// Runs a command of `isotherm service`.
pub fn run(task: ServiceTask) -> Result<ExitCode> {
    match task {
        ServiceTask::Status(o) => status(&o),
        ServiceTask::Pause(o) => send(&o, &Request::Pause),
        ServiceTask::Resume(o) => send(&o, &Request::Resume),
        ServiceTask::Commit(o) => commit(&o),
        ServiceTask::Attributes(o) => attributes(&o),
        ServiceTask::Targets(o) => targets(o),
        ServiceTask::Record(o) => recording(&o),
        ServiceTask::Stop(o) => send(&o, &Request::Stop),
    }
}

/// Sends a request to the service.
fn send(o: &Control, request: &Request) -> Result<ExitCode> {
    say_to(o.control.as_deref(), request)?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the schemes by those of a file.
fn commit(o: &Commit) -> Result<ExitCode> {
    let schemes = text_of(&o.file, || format!("cannot read the schemes {}", o.file.display()))?;
    let request = Request::Commit { schemes, form: SchemeSyntax::of(&o.file) };
    match say_to(o.of.control.as_deref(), &request) {
        // The service does not know the name of the file.
        Err(e @ ControlError::Refused(_)) => {
            Err(anyhow::Error::from(e).context(o.file.display().to_string()))
        }
        said => Ok(said.map(|()| ExitCode::SUCCESS)?),
    }
}

/// Changes the attributes of watching.
fn attributes(o: &SetAttributes) -> Result<ExitCode> {
    let new = Attributes {
        budget: o.budget.map(|ppm| f64::from(ppm) / 1e6),
        ipis: o.ipis,
        interval_seconds: o.interval.map(|time| time.as_secs_f64()),
        sample_seconds: o.sample.map(|time| time.as_secs_f64()),
        aggr_seconds: o.aggr.map(|time| time.as_secs_f64()),
        update_seconds: o.update.map(|time| time.as_secs_f64()),
        min_regions: o.regions.map(|(min, _)| min),
        max_regions: o.regions.map(|(_, max)| max),
    };
    send(&o.of, &Request::Attributes(new))
}

/// Adds and removes targets.
fn targets(o: SetTargets) -> Result<ExitCode> {
    send(&o.of, &Request::Targets { add: o.add, remove: o.remove })
}

/// Starts or ends a record.
fn recording(o: &Recording) -> Result<ExitCode> {
    match &o.task {
        RecordingTask::Start { file, max_size, of } => {
            // The service has another working directory.
            let file =
                std::path::absolute(file).context("cannot determine the working directory")?;
            send(of, &Request::Record { file: Some(file), max_size: *max_size, off: false })
        }
        RecordingTask::Stop { of } => {
            send(of, &Request::Record { file: None, max_size: None, off: true })
        }
    }
}

/// Prints the state of the service.
fn status(o: &Status) -> Result<ExitCode> {
    let mut answer = ask(o.of.control.as_deref(), &Request::Status)?;
    let mut status = answer["status"].take();
    name_refaults(&mut status["refaults"]);
    let text = if o.json { format!("{status}\n") } else { status_text(&status) };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
