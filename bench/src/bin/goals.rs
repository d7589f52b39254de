//! Do goals of schemes settle? This runs the real engine on the simulated machine that swaps. The target
//! steps up and down; in one case no memory is touched. It prints one table, and exits with status 1 if a
//! goal does not settle.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use isotherm_bench::reclaimer::{GoalPlan, WINDOW, WindowStats, run};
use isotherm_bench::settling::{overshoot, settled, smoothed};
use isotherm_core::PAGE_SIZE;
use isotherm_core::scheme::{Goal, Metrics, Scope};

/// Memory that becomes ever colder, and some that is never touched.
const BUSY: &str = "about = 'ever colder'\nislands = 0\n\
    region = [{ name = 'hot', size = '16M', gap = '0' }, { name = '10 s', size = '64M', gap = '0' },\
    { name = '30 s', size = '64M', gap = '0' }, { name = '100 s', size = '64M', gap = '0' },\
    { name = '300 s', size = '64M', gap = '0' }, { name = '1000 s', size = '128M', gap = '0' },\
    { name = 'never', size = '200M', gap = '0' }]\n[[phase]]\nname = 'p'\nduration = '1s'\n\
    access = [{ region = 'hot', rate = 20 }, { region = '10 s', rate = 0.1 },\
    { region = '30 s', rate = 0.03333 }, { region = '100 s', rate = 0.01 },\
    { region = '300 s', rate = 0.003333 }, { region = '1000 s', rate = 0.001 }]\n";
/// No memory is ever touched again.
const IDLE: &str = "about = 'idle'\nislands = 0\nregion = [{ name = 'never', size = '600M' }]\n\
    [[phase]]\nname = 'p'\nduration = '1s'\n";
/// The mean over this many windows counts, because faults are random.
const SMOOTH: usize = 60;
/// Maximum level of the quota on an idle machine that has not used it.
const UNPROVEN: u64 = 1 << 20;

#[derive(Debug, Parser)]
struct Options {
    /// Windows of one second after each step
    #[arg(long, default_value_t = 1200)]
    windows: usize,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// KiB per window of the quota in addition to a goal
    #[arg(long, default_value_t = 1024)]
    quota: u64,
    /// Use goals without an additional quota
    #[arg(long)]
    alone: bool,
}

fn main() -> Result<ExitCode> {
    let o = Options::parse();
    ensure!((60..=100_000).contains(&o.windows), "{} windows: choose 60 to 100000", o.windows);
    ensure!((4..1 << 30).contains(&o.quota), "a quota of {} KiB: choose 4 or more", o.quota);
    let bytes = (!o.alone).then_some(o.quota << 10);
    println!("| goal | settled after, windows | overshoot | level when idle |\n|---|---|---|---|");
    let mut held = true;
    for (name, goals) in goals() {
        let asked = GoalPlan { goals: goals.clone(), windows: o.windows, bytes };
        let busy = run(BUSY, &asked, o.seed)?;
        let steps: Vec<Vec<f64>> = goals.iter().zip(busy.chunks(o.windows)).map(shares).collect();
        let idle = run(IDLE, &asked, o.seed)?;
        let level = idle.last().map_or(0, |w| w.bound);
        let used = idle.iter().rev().take(2).map(|w| w.out).max().unwrap_or(0);
        let settled: Vec<Option<usize>> = steps.iter().map(|step| settled(step)).collect();
        let beyond = steps.iter().filter_map(|step| overshoot(step)).fold(0.0, f64::max);
        held &= settled.iter().all(Option::is_some) && beyond <= 2.0;
        held &= level <= UNPROVEN.max(2 * used);
        let words: Vec<String> =
            settled.iter().map(|s| s.map_or("never".into(), |n| n.to_string())).collect();
        let level = level as f64 / f64::from(1 << 20);
        println!("| {name} | {} | {beyond:.2} | {level:.2} MiB |", words.join(", "));
    }
    if !held {
        eprintln!("not all settle, overshoot at most twofold, and stay low when idle");
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Each goal with a first target, a step up from it, and a step back down.
fn goals() -> [(&'static str, Vec<Goal>); 4] {
    let of = Scope::Machine;
    let stalled = |ms| Goal::Stalled { of: of.clone(), target: Duration::from_millis(ms) };
    let refaults = |percent: u32| Goal::Refaults { of: of.clone(), ppm: percent * 10_000 };
    let resident = |mib: u64| Goal::Resident { of: of.clone(), bytes: mib << 20 };
    let free = |percent: u32| Goal::Free { bp: percent * 100 };
    [
        ("stalled 4, 10, 4 ms/s", [4, 10, 4].map(stalled).to_vec()),
        ("refaults 5, 12, 5 % of the working set", [5, 12, 5].map(refaults).to_vec()),
        ("resident 400, 250, 400 MiB", [400, 250, 400].map(resident).to_vec()),
        ("free 40, 50, 40 %", [40, 50, 40].map(free).to_vec()),
    ]
}

/// The share of a goal that is reached in each window; 1 is all of it.
fn shares((goal, windows): (&Goal, &[WindowStats])) -> Vec<f64> {
    let share = |pair: &[WindowStats]| share(goal, &pair[0].metrics, &pair[1].metrics);
    smoothed(&windows.windows(2).map(share).collect::<Vec<_>>(), SMOOTH)
}

fn share(goal: &Goal, before: &Metrics, now: &Metrics) -> f64 {
    let figures = &now.machine;
    let pressure = [before, now].map(|m| m.machine.pressure.unwrap_or_default());
    let [stalled, faults] = [
        pressure[1].stalled.saturating_sub(pressure[0].stalled).as_secs_f64(),
        pressure[1].major_faults.saturating_sub(pressure[0].major_faults) as f64,
    ];
    let window = WINDOW.as_secs_f64();
    match goal {
        Goal::Stalled { target, .. } => stalled / window / target.as_secs_f64(),
        Goal::Refaults { ppm, .. } => {
            let a_minute = faults * PAGE_SIZE as f64 / window * 60.0;
            a_minute / (figures.working_set.unwrap_or(0) as f64 * f64::from(*ppm) / 1e6)
        }
        Goal::Resident { bytes, .. } => *bytes as f64 / figures.resident.unwrap_or(0) as f64,
        Goal::Free { bp } => f64::from(now.free_bp.unwrap_or(0)) / f64::from(*bp),
        Goal::User { .. } => f64::NAN,
    }
}
