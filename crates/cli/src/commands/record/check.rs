//! `isotherm record --check`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_record::{ReadError, TornReason, Verification, verify};
use isotherm_report::counted;

use crate::log::say;

/// Checks whether a record is sound, and prints the result.
pub fn run(path: &Path) -> Result<ExitCode> {
    let verification = verify(path).with_context(|| format!("cannot check {}", path.display()))?;
    if let Some(torn) = &verification.torn {
        say(format_args!("isotherm: {torn}"));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text(path, &verification).as_bytes())?;
    out.flush()?;
    let is_good = verification.is_sound() && !is_cut_to_nothing(&verification);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether it ends before its first snapshot, and no process writes it any more.
fn is_cut_to_nothing(v: &Verification) -> bool {
    let goes_on = |e: &ReadError| matches!(e, ReadError::Torn { why: TornReason::Recording, .. });
    v.snapshots == 0 && v.torn.as_ref().is_some_and(|torn| !goes_on(torn))
}

fn text(path: &Path, v: &Verification) -> String {
    let held = format!(
        "{}, {}, {}",
        counted(v.snapshots, "snapshot"),
        counted(v.regions, "region"),
        counted(v.targets, "target")
    );
    if is_cut_to_nothing(v) && v.is_sound() {
        return format!("{} is cut short: {held}\n", path.display());
    }
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
            "damage: {} bytes in {}; missing: {}\n",
            v.lost.bytes,
            counted(v.lost.places, "place"),
            counted(v.lost.snapshots, "snapshot")
        );
    }
    out
}
