//! `isotherm web`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::watch::WatchedMemory;
use isotherm_web::WatchOptions;

use super::line::StatusLine;
use crate::cli::{UsageError, Web};

/// Shows live processes, a service or records in a browser.
pub fn run(o: &Web) -> Result<ExitCode> {
    let options = o.options();
    let records = o.records();
    if !records.is_empty() {
        isotherm_web::show(&records, &o.logs, &options)?;
    } else if o.service || o.control.is_some() {
        isotherm_web::follow(o.control.as_deref(), &options)?;
    } else {
        let targets = o.targets.selection(false);
        if targets.is_empty() {
            let text = "nothing to show: give a record, --service, --pid PID, --comm NAME, --cgroup PATH, --all, or \
                        a command after --";
            return Err(UsageError::new(text).into());
        }
        let _ = o.watching.check()?;
        let live = WatchOptions {
            targets,
            what: WatchedMemory::Processes(Vec::new()),
            look: o.watching.look,
            seed: o.watching.seed,
        };
        isotherm_web::watch(&live, &o.watching, &options, Box::new(StatusLine::new()))?;
    }
    Ok(ExitCode::SUCCESS)
}
