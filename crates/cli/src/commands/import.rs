//! `isotherm import`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm::text_file::standard_input;
use isotherm_record::import::{Import, ImportError, Presumed};
use isotherm_record::{FileEndReason, Writer};
use isotherm_report::counted;

use crate::cli::{self, UsageError};
use crate::log::say;

/// Writes a recording of another tool as a record.
pub fn run(o: &cli::Import) -> Result<ExitCode> {
    let stdin = o.file == Path::new("-");
    let name = if stdin { Path::new("standard input") } else { &o.file };
    let file = match stdin {
        true => standard_input()?,
        false => File::open(name).with_context(|| format!("cannot read {}", name.display()))?,
    };
    let presumed = Presumed { sample: o.sample, aggr: o.aggr };
    let import = Import::read(file, name, env!("CARGO_PKG_VERSION"), presumed);
    let import = import.map_err(|e| match e {
        ImportError::Interval { .. } => UsageError::new(e.to_string()).into(),
        e => anyhow::Error::from(e),
    })?;
    let mut writer = Writer::create_whole(&o.output, import.facts())?;
    for target in import.targets() {
        let _ = writer.target(target.clone())?;
    }
    let mut regions: u64 = 0;
    for snapshot in import.snapshots() {
        regions += snapshot.nr_regions() as u64;
        let _ = writer.snapshot(&snapshot)?;
    }
    let snapshots = writer.finish(FileEndReason::Played, "imported")?.snapshots;
    say(format_args!(
        "imported {} with {} from {} ({}) to {}",
        counted(snapshots, "snapshot"),
        counted(regions, "region"),
        name.display(),
        import.format().name(),
        o.output.display()
    ));
    if import.is_presumed() {
        say(format_args!(
            "isotherm: {} does not have its sampling interval: {:.3?} is presumed, so that rates have no upper \
             bound; give --sample if you know it",
            name.display(),
            import.facts().attrs.sample
        ));
    }
    if import.facts().missing.ages {
        say(format_args!(
            "isotherm: {} does not have ages: reports show lower bounds, which count from its first snapshot",
            name.display()
        ));
    }
    if import.incomplete() > 0 {
        say(format_args!(
            "isotherm: {} results are left out, because some of their regions are missing",
            import.incomplete()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
