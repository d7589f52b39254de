//! Time and memory of each report on a record of ten million regions.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Parser;
use isotherm_bench::usage::print_run;
use isotherm_bench::{program, synthetic};

/// Measures time and memory of each report on a long record.
#[derive(Parser)]
struct Options {
    /// snapshots in the record
    #[arg(long, default_value_t = 10_000)]
    snapshots: u64,
    /// regions in each
    #[arg(long, default_value_t = 1000)]
    regions: u64,
    /// the program [default: that next to this one]
    #[arg(long)]
    isotherm: Option<PathBuf>,
}

const REPORTS: [&[&str]; 12] = [
    &["report", "heatmap", "-o", "a.png"],
    &["report", "heatmap", "-o", "a.svg"],
    &["report", "summary"],
    &["report", "wss"],
    &["report", "wss", "-o", "a.png"],
    &["report", "regions"],
    &["report", "regions", "-o", "a.svg"],
    &["report", "advice"],
    &["report", "access"],
    &["report", "raw"],
    &["report", "raw", "--json"],
    &["record", "--check", "isotherm.rec"],
];

fn main() -> Result<()> {
    let o = Options::parse();
    let isotherm = o.isotherm.map_or_else(program::beside, Ok)?;
    let dir = tempfile::tempdir()?;
    let record = dir.path().join("isotherm.rec");
    synthetic::write(&record, o.snapshots, o.regions)?;
    let (size, regions) = (record.metadata()?.len(), o.snapshots * o.regions);
    println!("{regions} regions in {} snapshots, {} MiB", o.snapshots, size >> 20);
    println!("{:<64} {:>8} {:>8} {:>10}", "isotherm", "s", "CPU s", "peak MiB");
    REPORTS.iter().try_for_each(|args| {
        let mut command = Command::new(&isotherm);
        print_run(command.args(*args).current_dir(dir.path()).stderr(Stdio::null()), args)
    })
}
