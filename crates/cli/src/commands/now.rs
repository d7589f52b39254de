//! `isotherm now`.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::watch::WatchedMemory;
use rustix::fs::{MemfdFlags, memfd_create};

use super::{record, report};
use crate::cli::{self, Selection, Targets, UsageError};

/// Watches for `--duration`, and shows the regions of the last snapshot. The record is in memory
/// only.
pub fn run(o: cli::Now) -> Result<ExitCode> {
    in_memory("now", &o.targets, WatchedMemory::processes(), |what, path| {
        let watched = record::in_passing(&o.targets, what, &o.watching, o.duration, path, false)?;
        let shown = report::access(&Selection::all(path, o.shown.clone()), o.order.choice())?;
        Ok(if watched == ExitCode::SUCCESS { shown } else { watched })
    })
}

/// Calls `watch` with the path of a record that is in memory only, for a command that watches
/// running processes.
pub fn in_memory(
    command: &str,
    targets: &Targets,
    what: WatchedMemory,
    watch: impl FnOnce(WatchedMemory, &Path) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let is_of_processes = matches!(what, WatchedMemory::Processes(_));
    if is_of_processes && (targets.selection(false).is_empty() || !targets.command.is_empty()) {
        let text = format!(
            "{command} watches running processes: give --pid PID, --comm NAME, --cgroup PATH or --all{}; \
             isotherm record -- COMMAND starts a command and records it",
            if command == "need" { ", or files by --file or --dir" } else { "" }
        );
        return Err(UsageError::new(text).into());
    }
    let memory = memfd_create("isotherm", MemfdFlags::CLOEXEC)
        .context("cannot create a record in memory")?;
    watch(what, format!("/proc/self/fd/{}", memory.as_raw_fd()).as_ref())
}
