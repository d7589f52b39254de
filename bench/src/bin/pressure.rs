//! Does monitoring change its target? The target is a process at its memory limit, whose hot set competes
//! with a stream. Cleared memory looks old to reclaim.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::bootstrap::{Estimate, median_of};
use isotherm_bench::cpus;
use isotherm_bench::limited::Limited;
use isotherm_bench::load::{self, LoadParameters, LoadProcess};
use isotherm_bench::output::save_json;
use isotherm_bench::setups::Setups;
use isotherm_bench::slices::{OFF, Slice, order, rate};
use isotherm_bench::watched_load::WatchedLoad;
use isotherm_linux::swap::Swap;
use isotherm_sim::MachineKind;
use serde::Serialize;

#[derive(Parser)]
struct Options {
    /// hot set in MiB
    #[arg(long, default_value_t = 96)]
    hot: u64,
    /// limit of the group in MiB
    #[arg(long, default_value_t = 192)]
    limit: u64,
    /// memory of the target in MiB; the memory that is not hot is streamed through
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// slices of each kind
    #[arg(long, default_value_t = 12)]
    slices: usize,
    /// length of a slice in ms
    #[arg(long, default_value_t = 8000)]
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

/// The effect of watching in one way, as ratios of watched to not watched.
#[derive(Serialize)]
struct Effect {
    watched: String,
    /// major faults per second of the target's CPU time
    faults: Option<Estimate>,
    /// touches per second of the target's CPU time
    touches: Option<Estimate>,
    /// major faults per second
    faults_per_second: f64,
    own_cpu: f64,
}

/// All results of a run.
#[derive(Serialize)]
struct Run {
    hot_mib: u64,
    limit_mib: u64,
    mib: u64,
    seed: u64,
    changed: Vec<Effect>,
    rounds: Vec<Vec<Slice>>,
}

fn main() -> Result<()> {
    load::run_if_asked()?;
    let o = Options::parse();
    check(&o)?;
    let setups = o.setups.on(MachineKind::Real)?;
    let allowed = cpus::allowed()?;
    let _swap = Swap::start(o.size << 21)?;
    eprintln!("if this program is killed, restore its changes by hand: {}", Swap::HOW_TO_REMOVE);
    let group = Limited::start(o.limit << 20)?;
    // One CPU for the target, the others for the monitors and for reclaim.
    let (theirs, ours) = allowed.split_last().context("no CPU to run on")?;
    cpus::pin(if ours.is_empty() { &allowed } else { ours })?;
    let shape = LoadParameters {
        hot: Some(o.hot << 20),
        streams: true,
        cpus: vec![*theirs],
        ..LoadParameters::of(o.size << 20)
    };
    let load = group.within(|| LoadProcess::start(shape))?;
    let mut watched = WatchedLoad::of(load, vec![*theirs], &setups, o.seed)?;
    let length = Duration::from_millis(o.slice_ms);
    let rounds = order(setups.len() + 1, o.slices, o.seed)
        .into_iter()
        .map(|round| round.into_iter().map(|way| watched.slice(way, length)).collect())
        .collect::<Result<Vec<Vec<Slice>>>>()?;
    drop(watched);
    let names = setups.iter().map(|s| s.name.clone());
    let changed = (OFF + 1..).zip(names).map(|(way, name)| changed(&rounds, way, name, o.seed));
    let changed: Vec<Effect> = changed.collect();
    print(&o, &group, &rounds, &changed);
    let run =
        Run { hot_mib: o.hot, limit_mib: o.limit, mib: o.size, seed: o.seed, changed, rounds };
    o.json.as_deref().map_or(Ok(()), |path| save_json(path, &run))
}

fn check(o: &Options) -> Result<()> {
    ensure!(
        (16..=65_536).contains(&o.hot) && o.hot < o.limit && o.limit * 2 <= o.size,
        "a hot set of {} MiB, a limit of {} and {} in all: the limit must be above the hot set, and at most half of all",
        o.hot,
        o.limit,
        o.size
    );
    ensure!((1..=10_000).contains(&o.slices), "{} slices: choose 1 to 10000", o.slices);
    ensure!(
        (100..=600_000).contains(&o.slice_ms),
        "a slice of {} ms: choose 100 to 600000",
        o.slice_ms
    );
    Ok(())
}

fn changed(rounds: &[Vec<Slice>], way: usize, watched: String, seed: u64) -> Effect {
    let of = |round: &Vec<Slice>, way| round.iter().find(|s| s.way == way).copied();
    let pairs: Vec<(Slice, Slice)> =
        rounds.iter().filter_map(|r| of(r, way).zip(of(r, OFF))).collect();
    let ratio = |count: fn(&Slice) -> f64| {
        let a_second = |s: &Slice| count(s) / s.target_cpu_seconds;
        let ratios: Vec<f64> = pairs.iter().map(|(on, off)| a_second(on) / a_second(off)).collect();
        median_of(&ratios, seed).filter(|e| e.median.is_finite())
    };
    let on: Vec<Slice> = pairs.iter().map(|(on, _)| *on).collect();
    Effect {
        watched,
        faults: ratio(|s| s.major_faults as f64),
        touches: ratio(|s| s.touched as f64),
        faults_per_second: rate(&on, |s| s.major_faults as f64),
        own_cpu: rate(&on, |s| s.cpu_seconds),
    }
}

fn print(o: &Options, group: &Limited, rounds: &[Vec<Slice>], changed: &[Effect]) {
    let off: Vec<Slice> = rounds.iter().flatten().filter(|s| s.way == OFF).copied().collect();
    println!(
        "{} MiB hot, {} MiB in all, a limit of {} MiB (cgroup {:?}); not watched: {:.0} major faults a second\n",
        o.hot,
        o.size,
        o.limit,
        group.version(),
        rate(&off, |s| s.major_faults as f64),
    );
    println!(
        "| watched | major faults a CPU second, to those without (95 %) | touches a CPU second, to those without (95 %) | major faults a second | own CPU |\n|---|---|---|---|---|"
    );
    for c in changed {
        println!(
            "| {} | {} | {} | {:.0} | {:.2} % |",
            c.watched,
            times(c.faults.as_ref()),
            times(c.touches.as_ref()),
            c.faults_per_second,
            c.own_cpu * 100.0,
        );
    }
}

fn times(e: Option<&Estimate>) -> String {
    e.map_or("-".into(), |e| format!("{:.3} ({:.3} to {:.3})", e.median, e.low, e.high))
}
