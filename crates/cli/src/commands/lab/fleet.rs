//! `isotherm lab fleet`.

use std::process::ExitCode;

use anyhow::Result;
use isotherm::lab::fleet::{fleet, write_lake, write_truth};
use isotherm_report::{bytes, counted};
use isotherm_sim::fleet::FleetSpec;

use crate::cli::FleetLab;
use crate::commands::report::output::show;
use crate::log::say;

/// Writes the lake and the truth.
pub fn run(o: &FleetLab) -> Result<ExitCode> {
    let spec = FleetSpec { hosts: o.hosts, days: o.days, groups: o.groups, seed: o.seed };
    let fleet = fleet(spec);
    // First, because the lake of many hosts takes long.
    if let Some(path) = &o.truth {
        write_truth(&fleet, path)?;
    }
    let written = write_lake(&fleet, &o.lake, |day| {
        say(format_args!("wrote day {} of {}", day + 1, o.days));
    })?;
    show(o.json, &written, || {
        format!(
            "{} of {} in {}, {} ({:.1} bytes a row), in {}\n",
            counted(written.rows, "row"),
            counted(written.services as u64, "service"),
            counted(written.files, "file"),
            bytes(written.bytes),
            written.bytes as f64 / written.rows.max(1) as f64,
            o.lake.display()
        )
    })
}
