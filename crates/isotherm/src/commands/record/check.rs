//! `isotherm record --check`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_record::{Verdict, verify};

use crate::words::say;

/// Says whether a record is sound.
pub fn run(path: &Path) -> Result<ExitCode> {
    let verdict = verify(path).with_context(|| format!("cannot check {}", path.display()))?;
    if let Some(torn) = &verdict.torn {
        say(format_args!("isotherm: {torn}"));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text(path, &verdict).as_bytes())?;
    out.flush()?;
    Ok(if verdict.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(path: &Path, v: &Verdict) -> String {
    let held = format!(
        "{}, {}, {}",
        counted(v.snapshots, "snapshot"),
        counted(v.regions, "region"),
        counted(v.targets, "target")
    );
    if v.is_sound() {
        return format!("{} is sound: {held}\n", path.display());
    }
    let mut out =
        format!("{} is not sound: {held}; {}\n", path.display(), counted(v.nr_problems, "problem"));
    for problem in &v.problems {
        out += &format!("{problem}\n");
    }
    let more = v.nr_problems - v.problems.len() as u64;
    if more > 0 {
        out += &format!("and {more} more\n");
    }
    if v.lost.places > 0 {
        out += &format!(
            "damage: {} bytes in {}; missing between others: {}\n",
            v.lost.bytes,
            counted(v.lost.places, "place"),
            counted(v.lost.snapshots, "snapshot")
        );
    }
    out
}

fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
