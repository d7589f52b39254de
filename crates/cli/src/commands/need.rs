//! `isotherm need`.

use std::process::ExitCode;

use anyhow::Result;

use super::now::in_memory;
use super::{record, report};
use crate::cli;

/// Watches for `--for`, and shows how much memory the processes need. The record is in memory only.
pub fn run(o: cli::NeedNow) -> Result<ExitCode> {
    in_memory("need", &o.targets, |path| {
        record::in_passing(&o.targets, &o.watching, o.duration, path, true)?;
        report::need_of(path, o.asked, o.json)
    })
}
