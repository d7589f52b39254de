//! `isotherm now`.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};

use super::{record, report};
use crate::cli::{self, Selection, Targets, UsageError};

/// Watches for `--duration`, and shows the regions of the last snapshot. The record is in memory
/// only.
pub fn run(o: cli::Now) -> Result<ExitCode> {
    in_memory("now", &o.targets, |path| {
        record::in_passing(&o.targets, &o.watching, o.duration, path, false)?;
        report::access(&Selection::all(path, o.shown.clone()), o.order.choice())
    })
}

/// Calls `watch` with the path of a record that is in memory only, for a command that watches
/// running processes.
pub fn in_memory(
    command: &str,
    targets: &Targets,
    watch: impl FnOnce(&Path) -> Result<ExitCode>,
) -> Result<ExitCode> {
    if targets.selection(false).is_empty() || !targets.command.is_empty() {
        let text = format!(
            "{command} watches running processes: give --pid PID, --comm NAME, --cgroup PATH or --all; \
             isotherm record -- COMMAND starts a command and records it"
        );
        return Err(UsageError::new(text).into());
    }
    let memory = memfd_create("isotherm", MemfdFlags::CLOEXEC)
        .context("cannot create a record in memory")?;
    watch(format!("/proc/self/fd/{}", memory.as_raw_fd()).as_ref())
}
