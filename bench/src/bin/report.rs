//! Time and memory of each report on a record of ten million regions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::{program, synthetic, usage};

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
    println!("{:<36} {:>8} {:>8} {:>10}", "isotherm", "s", "CPU s", "peak MiB");
    REPORTS.iter().try_for_each(|args| measure(&isotherm, dir.path(), args))
}

fn measure(isotherm: &Path, dir: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new(isotherm);
    command.args(args).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
    let used = usage::run(&mut command).context("cannot run isotherm")?;
    ensure!(used.status.success(), "isotherm {} has failed", args.join(" "));
    let (seconds, cpu) = (used.time.as_secs_f64(), used.cpu.as_secs_f64());
    let mib = used.peak_rss as f64 / (1 << 20) as f64;
    println!("{:<36} {seconds:>8.2} {cpu:>8.2} {mib:>10.1}", args.join(" "));
    Ok(())
}
