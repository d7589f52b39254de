//! `isotherm now`.

use std::os::fd::AsRawFd;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};

use super::{record, report};
use crate::cli::{self, Input, Selection, UsageError};

/// Watches for `--duration`, and shows the regions of the last snapshot. The record is in memory
/// only.
pub fn run(o: cli::Now) -> Result<ExitCode> {
    if o.targets.selection(false).is_empty() || !o.targets.command.is_empty() {
        let text = "now watches running processes: give --pid PID, --comm NAME, --cgroup PATH or --all; \
                    isotherm record -- COMMAND starts a command and records it";
        return Err(UsageError::new(text).into());
    }
    let memory = memfd_create("isotherm-now", MemfdFlags::CLOEXEC)
        .context("cannot create a record in memory")?;
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    record::in_passing(&o, path.as_ref())?;
    let selection = Selection {
        input: Input { path: path.into(), skip_damaged: false },
        time: None,
        target: Vec::new(),
        shown: o.shown,
    };
    report::access(&selection, o.order.choice())
}
