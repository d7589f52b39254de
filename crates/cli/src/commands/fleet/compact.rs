//! `isotherm fleet compact`.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use isotherm::agent::LakePlace;
use isotherm_fleet::{Bucket, CompactedDay, Folder, LakeFiles, compact};
use isotherm_report::counted;

use crate::cli::{CompactFleet, UsageError};
use crate::log::say;

/// Copies days of a lake.
pub fn run(o: &CompactFleet) -> Result<ExitCode> {
    if let LakePlace::Objects(url) = &o.lake
        && Bucket::s3(url)?.parts("", "date=")?.is_empty()
    {
        let text =
            format!("there are no rows at {url}: name the bucket and the prefix with --lake");
        return Err(UsageError::new(text).into());
    }
    let (days, whole) = copy(&o.lake, &o.to, o.date.as_deref(), now()?)?;
    if let Some(date) = o.date.as_deref().filter(|_| days == 0) {
        return Err(UsageError::new(format!("the lake has no files of hosts of {date}")).into());
    }
    if days == 0 {
        say(
            "there is nothing to copy: every day that ended an hour ago or earlier has a copy, or has no files of hosts \
             (date=DAY/host=NAME), as the lake of isotherm lab fleet, whose files are already large",
        );
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Milliseconds since 1970.
pub fn now() -> Result<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(now.as_millis())?)
}

/// Copies a day, or all days that ended an hour before `now` and have no complete copy. Returns how many days, and whether
/// all their files were read.
pub fn copy(lake: &LakePlace, to: &Path, date: Option<&str>, now: i64) -> Result<(usize, bool)> {
    let lake: Box<dyn LakeFiles> = match lake {
        LakePlace::Dir(dir) if dir.is_dir() => Box::new(Folder(dir)),
        LakePlace::Dir(dir) => {
            let text =
                format!("there is no lake at {}: name its folder with --lake", dir.display());
            return Err(UsageError::new(text).into());
        }
        LakePlace::Objects(url) => Box::new(Bucket::s3(url)?),
    };
    let (mut days, mut whole) = (0, true);
    compact(&*lake, to, date, now, |day| {
        days += 1;
        whole &= day.left_out.is_empty();
        report(day);
    })?;
    Ok((days, whole))
}

fn report(day: &CompactedDay) {
    let CompactedDay { date, hosts, rows, files, left_out } = day;
    match files {
        0 => say(format!("{date}: the copy is incomplete")),
        _ => {
            let [rows, hosts, files] = [(rows, "row"), (hosts, "host"), (files, "file")]
                .map(|(&n, what)| counted(n as u64, what));
            say(format!("{date}: {rows} of {hosts} in {files}"));
        }
    }
    for (name, why) in left_out {
        tracing::warn!("{name} cannot be read, and is not in the copy: {why}");
    }
}
