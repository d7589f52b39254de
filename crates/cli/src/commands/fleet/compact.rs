//! `isotherm fleet compact`.

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use isotherm_fleet::{CompactedDay, compact};

use crate::cli::{CompactFleet, UsageError};
use crate::log::say;

/// Copies days of a lake.
pub fn run(o: &CompactFleet) -> Result<ExitCode> {
    if !o.lake.is_dir() {
        let text = format!("there is no lake at {}: name its folder with --lake", o.lake.display());
        return Err(UsageError::new(text).into());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut days, mut whole) = (0, true);
    let now = i64::try_from(now.as_millis())?;
    compact(&o.lake, &o.to, o.date.as_deref(), now, |day| {
        days += 1;
        whole &= day.left_out.is_empty();
        report(day);
    })?;
    if days == 0 {
        say("there is nothing to copy: no day has ended that has no copy, or there is no such day");
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(day: &CompactedDay) {
    let CompactedDay { date, hosts, rows, files, left_out } = day;
    say(format!("{date}: {rows} rows of {hosts} hosts in {files} files"));
    for (path, why) in left_out {
        tracing::warn!("{} cannot be read, and is not in the copy: {why}", path.display());
    }
}
