//! Pressure stall information: the time for which processes waited for memory.

use std::path::Path;
use std::time::Duration;

use super::{Cgroup, CgroupError, read_up_to};

/// Averages over the last 10, 60 and 300 s, and the total time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Averages {
    /// percent of the last 10 s
    pub avg10: f64,
    /// percent of the last 60 s
    pub avg60: f64,
    /// percent of the last 300 s
    pub avg300: f64,
    /// total since the group was created, or since boot
    pub total: Duration,
}

/// The content of `memory.pressure`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PressureStall {
    /// at least one process waited
    pub some: Averages,
    /// all processes that had work to do waited
    pub full: Averages,
}

const NAME: &str = "memory.pressure";

impl Cgroup {
    /// Reads `memory.pressure`. Version 2 only.
    ///
    /// # Errors
    /// If the kernel does not count that.
    pub fn memory_pressure(&self) -> Result<PressureStall, CgroupError> {
        let text = self.read(
            NAME,
            "this requires a group of version 2, and a kernel with \
                                    CONFIG_PSI that was not booted with psi=0",
        )?;
        parse(&text).ok_or_else(|| self.parse_error(NAME, &text))
    }
}

/// The file for the whole machine, below the root of the file system.
pub(crate) const MACHINE_PRESSURE: &str = "proc/pressure/memory";

/// Reads `/proc/pressure/memory`: the waiting time of processes on the whole machine. `None` if the kernel
/// does not count that.
#[must_use]
pub fn machine_pressure(root: &Path) -> Option<PressureStall> {
    parse(&read_up_to(&root.join(MACHINE_PRESSURE), 4096).ok()?)
}

pub(crate) fn parse(text: &str) -> Option<PressureStall> {
    let line = |word: &str| text.lines().find_map(|line| line.strip_prefix(word));
    Some(PressureStall { some: averages(line("some ")?)?, full: averages(line("full ")?)? })
}

fn averages(line: &str) -> Option<Averages> {
    let value = |key: &str| {
        line.split_whitespace().find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
    };
    let percent = |key: &str| value(key)?.parse().ok().filter(|p| (0.0..=100.0).contains(p));
    Some(Averages {
        avg10: percent("avg10")?,
        avg60: percent("avg60")?,
        avg300: percent("avg300")?,
        total: Duration::from_micros(value("total")?.parse().ok()?),
    })
}
