//! What does monitoring cost, the target and the machine, and what would the straightforward way
//! cost?

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::slices::{Figures, Slice, Way, figures, order};
use isotherm_bench::watched::Watched;
use isotherm_bench::{cpus, load};
use isotherm_core::Attrs;
use serde::Serialize;

#[derive(Parser)]
struct Options {
    /// memory of the target in MiB; may be given several times
    #[arg(long, default_values_t = [256, 1024, 4096])]
    size: Vec<u64>,
    /// threads of the target; may be given several times
    #[arg(long, default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// slices of each kind
    #[arg(long, default_value_t = 20)]
    slices: usize,
    /// length of a slice in ms, made whole aggregation intervals (of 400 ms)
    #[arg(long, default_value_t = 2000)]
    slice_ms: u64,
    /// watch in this way only; slices without watching there always are
    #[arg(long)]
    only: Option<Way>,
    /// of the order of slices, the monitor, and the bootstrap
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// write all slices and figures there as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A target and what watching it has cost.
#[derive(Serialize)]
struct Case {
    mib: u64,
    threads: usize,
    /// whether the target had its CPUs for itself
    alone: bool,
    figures: Vec<Figures>,
    rounds: Vec<Vec<Slice>>,
}

/// All that a run has shown.
#[derive(Serialize)]
struct Run {
    seed: u64,
    aggr_ms: u128,
    intervals: u32,
    cases: Vec<Case>,
}

fn main() -> Result<()> {
    load::run_if_asked()?;
    let o = Options::parse();
    let allowed = cpus::allowed()?;
    for &mib in &o.size {
        ensure!((16..=1 << 20).contains(&mib), "a size of {mib} MiB: choose 16 to 1048576");
    }
    for &n in &o.threads {
        ensure!((1..=allowed.len()).contains(&n), "{n} threads: choose 1 to {}", allowed.len());
    }
    ensure!(o.only != Some(Way::Off), "nothing to compare: choose isotherm or straightforward");
    ensure!((1..=10_000).contains(&o.slices), "{} slices: choose 1 to 10000", o.slices);
    let aggr = Attrs::default().aggr;
    let intervals = intervals(Duration::from_millis(o.slice_ms), aggr)?;
    let mut run = Run { seed: o.seed, aggr_ms: aggr.as_millis(), intervals, cases: Vec::new() };
    print(HEAD)?;
    for (&threads, &mib) in o.threads.iter().flat_map(|t| o.size.iter().map(move |s| (t, s))) {
        let case = measure(&o, mib, threads, &allowed, intervals)?;
        print(&rows(&case))?;
        run.cases.push(case);
    }
    match &o.json {
        Some(path) => save(path, &run),
        None => Ok(()),
    }
}

fn intervals(slice: Duration, aggr: Duration) -> Result<u32> {
    let n = slice.as_nanos() / aggr.as_nanos().max(1);
    ensure!((1..=1000).contains(&n), "a slice of {slice:?}: choose 1 to 1000 times {aggr:?}");
    Ok(u32::try_from(n)?)
}

fn measure(
    o: &Options,
    mib: u64,
    threads: usize,
    allowed: &[usize],
    intervals: u32,
) -> Result<Case> {
    let ways: Vec<Way> = [Way::Isotherm, Way::Straightforward]
        .into_iter()
        .filter(|way| o.only.is_none_or(|only| only == *way))
        .collect();
    let mut watched = Watched::start(mib << 20, threads, allowed, o.seed)?;
    let all = [&[Way::Off], ways.as_slice()].concat();
    let rounds = order(&all, o.slices, o.seed)
        .into_iter()
        .map(|round| round.into_iter().map(|way| watched.slice(way, intervals)).collect())
        .collect::<Result<Vec<Vec<Slice>>>>()?;
    let figures = ways.iter().filter_map(|&way| figures(&rounds, way, o.seed)).collect();
    Ok(Case { mib, threads, alone: watched.is_alone(), figures, rounds })
}

const HEAD: &str = "\
| target | threads | watched | own CPU | of the other | slowdown (95 %) | clears a second | TLB shootdowns a second |
|---|---|---|---|---|---|---|---|
";

fn rows(case: &Case) -> String {
    case.figures.iter().map(|f| row(case, f)).collect()
}

fn row(case: &Case, f: &Figures) -> String {
    let cpu = |way| case.figures.iter().find(|f| f.way == way).map(|f| f.cpu);
    let (ratio, way) = match f.way {
        Way::Off => return String::new(),
        Way::Isotherm => (cpu(Way::Straightforward), "isotherm"),
        Way::Straightforward => (cpu(Way::Isotherm), "clear_refs, smaps"),
    };
    let ratio = ratio.map_or("-".into(), |other| times(f.cpu / other));
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    format!(
        "| {} MiB | {}{} | {way} | {} % | {ratio} | {} % ({} to {}) | {:.0} | {:.0} |\n",
        case.mib,
        case.threads,
        if case.alone { "" } else { ", contended" },
        percent(f.cpu),
        percent(f.slowdown.median),
        percent(f.slowdown.low),
        percent(f.slowdown.high),
        f.clears,
        f.shootdowns,
    )
}

/// E.g. `12.5 x` or `1/12.5`.
fn times(ratio: f64) -> String {
    if ratio < 1.0 { format!("1/{:.1}", 1.0 / ratio) } else { format!("{ratio:.1} x") }
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn save(path: &std::path::Path, run: &Run) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(serde_json::to_writer_pretty(file, run)?)
}
