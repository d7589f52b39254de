//! The cost of monitoring for the target and for the machine, compared with that of `clear_refs` with `smaps`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use isotherm_bench::load::LoadParameters;
use isotherm_bench::output::save_json;
use isotherm_bench::setups::{MonitorSetup, Setups};
use isotherm_bench::slices::{OFF, Slice, WatchingCost, figures, order};
use isotherm_bench::watched_load::WatchedLoad;
use isotherm_bench::{cpus, load};
use isotherm_linux::Way;
use isotherm_sim::MachineKind;
use serde::Serialize;

#[derive(Parser)]
struct Options {
    /// memory of the target in MiB; repeatable
    #[arg(long, default_values_t = [1024, 4096, 8192, 16384])]
    size: Vec<u64>,
    /// part of it that is touched without pause, in MiB
    #[arg(long, default_value_t = 64)]
    hot: u64,
    /// part of it that is touched once a second, in MiB
    #[arg(long, default_value_t = 128)]
    warm: u64,
    /// threads of the target; repeatable
    #[arg(long, default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// slices of each kind
    #[arg(long, default_value_t = 12)]
    slices: usize,
    /// length of a slice in ms
    #[arg(long, default_value_t = 4000)]
    slice_ms: u64,
    /// seed of the order of slices, the monitors, and the bootstrap
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// also write all slices and figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    setups: Setups,
}

/// A target, and the cost of watching it.
#[derive(Serialize)]
struct Case {
    mib: u64,
    threads: usize,
    /// whether the target had its CPUs to itself
    alone: bool,
    figures: Vec<WatchingCost>,
    /// covered share of the memory at the end, by way
    coverage: Vec<Option<f64>>,
    rounds: Vec<Vec<Slice>>,
}

/// All results of a run.
#[derive(Serialize)]
struct Run {
    seed: u64,
    slice_ms: u64,
    hot_mib: u64,
    warm_mib: u64,
    /// names of the ways, by number
    ways: Vec<String>,
    cases: Vec<Case>,
}

fn main() -> Result<()> {
    load::run_if_asked()?;
    let o = Options::parse();
    let allowed = cpus::allowed()?;
    check(&o, &allowed)?;
    let setups = o.setups.on(MachineKind::Real)?;
    let names = setups.iter().map(|s| s.name.clone());
    let ways = std::iter::once("not at all".to_owned()).chain(names).collect();
    let (seed, slice_ms, hot_mib, warm_mib) = (o.seed, o.slice_ms, o.hot, o.warm);
    let mut run = Run { seed, slice_ms, hot_mib, warm_mib, ways, cases: Vec::new() };
    print(HEAD)?;
    for (&threads, &mib) in o.threads.iter().flat_map(|t| o.size.iter().map(move |s| (t, s))) {
        let case = measure(&o, &setups, mib, threads, &allowed)?;
        print(&rows(&case, &setups))?;
        run.cases.push(case);
    }
    match &o.json {
        Some(path) => save_json(path, &run),
        None => Ok(()),
    }
}

fn check(o: &Options, allowed: &[usize]) -> Result<()> {
    for &mib in &o.size {
        ensure!((16..=1 << 20).contains(&mib), "a size of {mib} MiB: choose 16 to 1048576");
        let most = mib / 4;
        ensure!(
            (1..=most).contains(&o.hot) && (1..=most).contains(&o.warm),
            "of {mib} MiB, --hot and --warm may be 1 to {most} each"
        );
    }
    for &n in &o.threads {
        ensure!((1..=allowed.len()).contains(&n), "{n} threads: choose 1 to {}", allowed.len());
    }
    ensure!((1..=10_000).contains(&o.slices), "{} slices: choose 1 to 10000", o.slices);
    ensure!(
        (100..=600_000).contains(&o.slice_ms),
        "a slice of {} ms: choose 100 to 600000",
        o.slice_ms
    );
    Ok(())
}

fn measure(
    o: &Options,
    setups: &[MonitorSetup],
    mib: u64,
    threads: usize,
    allowed: &[usize],
) -> Result<Case> {
    let (hot, warm) = (Some(o.hot << 20), Some(o.warm << 20));
    let shape = LoadParameters { hot, warm, ..LoadParameters::of(mib << 20) };
    let mut watched = WatchedLoad::start(shape, threads, allowed, setups, o.seed)?;
    let length = Duration::from_millis(o.slice_ms);
    let rounds = order(setups.len() + 1, o.slices, o.seed)
        .into_iter()
        .map(|round| round.into_iter().map(|way| watched.slice(way, length)).collect())
        .collect::<Result<Vec<Vec<Slice>>>>()?;
    let ways = OFF + 1..=setups.len();
    let figures = ways.clone().filter_map(|way| figures(&rounds, way, o.seed)).collect();
    let coverage = ways.map(|way| watched.coverage(way)).collect();
    Ok(Case { mib, threads, alone: watched.is_alone(), figures, coverage, rounds })
}

const HEAD: &str = "\
| target | threads | watched | own CPU | lost | of clear_refs | slowdown (95 %) | clears a second | TLB shootdowns a second | seen |
|---|---|---|---|---|---|---|---|---|---|
";

fn rows(case: &Case, setups: &[MonitorSetup]) -> String {
    let straightforward = setups.iter().position(|s| s.look == Way::Smaps).map(|i| i + 1);
    let other = case.figures.iter().find(|f| Some(f.way) == straightforward).map(|f| f.cpu);
    let ways = case.figures.iter().zip(setups).zip(&case.coverage);
    ways.map(|((f, setup), seen)| row(case, f, &setup.name, other, *seen)).collect()
}

fn row(case: &Case, f: &WatchingCost, name: &str, other: Option<f64>, seen: Option<f64>) -> String {
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    format!(
        "| {} MiB | {}{} | {name} | {} % | {} % | {} | {} % ({} to {}) | {:.1} | {:.1} | {} |\n",
        case.mib,
        case.threads,
        if case.alone { "" } else { ", contended" },
        percent(f.cpu),
        percent(f.lost),
        other.map_or("-".into(), |other| times(f.cpu / other)),
        percent(f.slowdown.median),
        percent(f.slowdown.low),
        percent(f.slowdown.high),
        f.clears,
        f.shootdowns,
        seen.map_or("-".into(), |share| format!("{:.0} %", share * 100.0)),
    )
}

/// A ratio, such as `12.5 x` or `1/12.5`.
fn times(ratio: f64) -> String {
    if ratio < 1.0 { format!("1/{:.1}", 1.0 / ratio) } else { format!("{ratio:.1} x") }
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
