//! The files of DAMON in sysfs that isotherm uses, from Linux 6.12 to 7.2, as plain structs.
//!
//! isotherm finds the abilities of a kernel by trying. If a value is set but its file is missing, the error
//! names both; `None` does not touch the file. Source: `Documentation/admin-guide/mm/damon/usage.rst`, and the
//! source trees of 6.12, 6.18 and 7.2.

mod entry;
mod tree;
mod words;

use std::path::{Path, PathBuf};

pub use entry::{Element, Entry, NumberedDirs, Place, SysfsError, Unwritable, Word, read, write};
pub use tree::{
    AccessPattern, Bounds, Context, Filter, Goal, Intervals, IntervalsGoal, Kdamond,
    MonitoringAttrs, Quotas, Region, Scheme, Stats, Target, TriedRegion, TriedRegions, Watermarks,
    Weights,
};
pub use words::{Action, Available, Command, FilterType, GoalMetric, Operations, WatermarkMetric};

/// The directory of all kdamonds: a `Vec<Kdamond>`.
#[must_use]
pub fn kdamonds(root: &Path) -> PathBuf {
    root.join("sys/kernel/mm/damon/admin/kdamonds")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
