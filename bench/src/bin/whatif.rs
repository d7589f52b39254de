//! What `isotherm whatif` takes of a record of a week.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use isotherm_bench::usage::print_run;
use isotherm_bench::{program, synthetic};

/// What playing a long record takes.
#[derive(Parser)]
struct Options {
    /// days of the record, with a snapshot each second and ages each minute
    #[arg(long, default_value_t = 7.0)]
    days: f64,
    /// regions in each snapshot
    #[arg(long, default_value_t = 300)]
    regions: u64,
    /// file for the record, which stays [default: a temporary one]
    #[arg(long)]
    record: Option<PathBuf>,
    /// the program [default: that next to this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

const SETTINGS: [&[&str]; 6] = [
    &["--min-age", "120s"],
    &["--min-age", "120s", "--pages"],
    &["--min-age", "10min", "--pages", "--quota", "none", "--quota-size", "none"],
    &["--limit", "48G"],
    &["--tiers", "32G:80ns,64G:250ns"],
    &["--sweep", "min-age=1min..6h", "--pages"],
];

fn main() -> Result<()> {
    let o = Options::parse();
    let isotherm = o.isotherm.map_or_else(program::beside, Ok)?;
    let dir = tempfile::tempdir()?;
    let record = o.record.unwrap_or_else(|| dir.path().join("isotherm.rec"));
    if !record.exists() {
        let seconds = (o.days * 86_400.0) as u64;
        synthetic::write_every(&record, seconds, o.regions, (Duration::from_secs(1), 60))?;
    }
    println!("{} days, {} regions, {} MiB", o.days, o.regions, record.metadata()?.len() >> 20);
    println!("{:<64} {:>8} {:>8} {:>10}", "isotherm whatif", "s", "CPU s", "peak MiB");
    SETTINGS.iter().try_for_each(|args| {
        print_run(Command::new(&isotherm).arg("whatif").arg(&record).args(*args), args)
    })
}
