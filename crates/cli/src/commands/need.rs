//! `isotherm need`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::usage::UsageError;
use isotherm::watch::{FilesToWatch, WatchedMemory};
use isotherm_linux::swap::time_of_fault;

use super::now::in_memory;
use super::{record, report};
use crate::cli::{self, NeedAsked};

/// Watches for `--for`, and shows how much memory the processes need, or which page cache the files. The record is in memory only.
pub fn run(o: cli::NeedNow) -> Result<ExitCode> {
    if !o.files.is_empty() && o.watching.monitor.is_some() {
        let text = "files are counted by a monitor of their own: leave out --monitor";
        return Err(UsageError::new(text).into());
    }
    if !o.files.is_empty() && !o.targets.selection(false).is_empty() {
        let text = "isotherm need computes either the memory of processes or the page cache of files: select one of them";
        return Err(UsageError::new(text).into());
    }
    if o.files.is_empty() && !o.asked.page_cache.is_empty() {
        let text = "--page-cache is about files: give --file, --dir, --mount or --cached with it";
        return Err(UsageError::new(text).into());
    }
    let what = match o.files.is_empty() {
        true => WatchedMemory::processes(),
        false => WatchedMemory::Files(FilesToWatch {
            scope: o.files.scope(&o.targets)?,
            by_access: false,
            remembers: false,
            traces: true,
        }),
    };
    let fault = o.asked.fault.or_else(|| time_of_fault("/".as_ref()));
    let asked = NeedAsked { fault, ..o.asked };
    in_memory("need", &o.targets, what, |what, path| {
        let watched = record::in_passing(&o.targets, what, &o.watching, o.duration, path, true)?;
        let shown = report::need_of(path, asked, o.json)?;
        Ok(if watched == ExitCode::SUCCESS { shown } else { watched })
    })
}
