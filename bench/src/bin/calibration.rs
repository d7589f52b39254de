//! Do 95 % intervals of rates contain the truth? The bench uses small simulated machines with many seeds, and
//! prints a table by decade of the true rate.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use isotherm_core::{Attrs, MonitorKind};
use isotherm_sim::{Calibrated, Decade, by_decade, calibrate};

#[derive(Parser)]
struct Options {
    /// number of machines
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// the first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// simulated time, in s; the last snapshot counts
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// the monitor: exposure, regions or pages
    #[arg(long, default_value = "exposure", value_parser = kind)]
    monitor: MonitorKind,
    /// budget of the exposure monitor in percent of a CPU
    #[arg(long, default_value_t = 1.0)]
    budget: f64,
    /// report windows instead of regions
    #[arg(long)]
    windows: bool,
    /// print each region whose interval does not contain the truth
    #[arg(long)]
    missed: bool,
}

fn kind(text: &str) -> Result<MonitorKind, String> {
    let kind = MonitorKind::ALL.into_iter().find(|k| k.name() == text);
    kind.ok_or_else(|| format!("{text} is no monitor: choose exposure, regions or pages"))
}

fn main() -> Result<()> {
    let o = Options::parse();
    ensure!((1..=1_000_000).contains(&o.seeds), "{} seeds: choose 1 to 1000000", o.seeds);
    ensure!((1..=3600).contains(&o.seconds), "{} s: choose 1 to 3600", o.seconds);
    let attrs = Attrs {
        monitor: o.monitor,
        budget_ppm: (o.budget * 1e4).round() as u32,
        windows: o.windows,
        ..Attrs::default()
    };
    let mut all: Vec<Calibrated> = Vec::new();
    for seed in o.seed..o.seed + o.seeds {
        let found = calibrate(seed, attrs, Duration::from_secs(o.seconds))?;
        for c in found.iter().filter(|c| o.missed && !c.is_held()) {
            println!("seed {seed}: {:?} {} Hz, estimated {:?}", c.range, c.true_hz, c.rate);
        }
        all.extend(found);
    }
    println!("| true rate from, Hz | regions | held | above | below | log2 bias | log2 width |");
    println!("|---|---|---|---|---|---|---|");
    by_decade(&all).iter().for_each(|d| println!("{}", line(&format!("{}", d.from_hz), d)));
    let touched: Vec<Calibrated> = all.into_iter().filter(|c| c.true_hz > 0.0).collect();
    let sum = Decade::of(0.0, &touched);
    println!("{}", line("all touched", &sum));
    Ok(())
}

fn line(name: &str, d: &Decade) -> String {
    let percent = |n: usize| 100.0 * n as f64 / d.regions.max(1) as f64;
    format!(
        "| {name} | {} | {:.1} % | {:.1} % | {:.1} % | {:+.2} | {:.2} |",
        d.regions,
        percent(d.held),
        percent(d.above),
        percent(d.regions - d.held - d.above),
        d.bias_log2,
        d.width_log2,
    )
}
