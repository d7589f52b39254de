//! The smallest limit that keeps an objective: found from one record, and by a search with real limits.
//!
//! Each workload is recorded without a limit. Then its limit is lowered step by step, until more memory comes back
//! than the objective allows.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::limit_search::{Predicted, Trials, Tried};
use isotherm_bench::limited::Limited;
use isotherm_bench::prediction::record;
use isotherm_bench::program::{ChildGuard, beside};
use isotherm_bench::user::{self, Scale, User, WORKLOADS};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::swap::Swap;
use serde_json::Value;

#[derive(Parser)]
struct Options {
    /// length of the records in s
    #[arg(long, default_value_t = 300)]
    record: u64,
    /// time at each limit before faults are counted, in s
    #[arg(long, default_value_t = 35)]
    settle: u64,
    /// time in which they are counted, in s
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    measure: u64,
    /// objectives: memory that may come back per minute, in percent of the memory that stays; the strictest first
    #[arg(long, value_delimiter = ',', default_value = "5,10,20,60")]
    objectives: Vec<f64>,
    /// size of the workloads, in percent of the usual ones
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=1000))]
    size: u64,
    /// time of their periods, in percent of the usual one
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=1000))]
    time: u64,
    /// only this workload
    #[arg(long, value_parser = WORKLOADS.map(|(name, _)| name))]
    only: Option<String>,
}

const MIB: f64 = 1_048_576.0;
const MINUTE: f64 = 60.0;
/// Bound for the mean error, in percent of the resident memory.
const MAX_MEAN_ERROR: f64 = 2.0;
/// More than so much at the step below the smallest limit is a cliff, as in `report need`.
const CLIFF: f64 = 10.0;

/// A workload in its group.
struct Case {
    name: &'static str,
    // Dropped before its group.
    user: User,
    group: Limited,
    trials: Trials,
}

impl Case {
    fn start(name: &'static str, mib: u64, scale: Scale) -> Result<Self> {
        let group = Limited::named(name, 8 << 30)?;
        let user = group.within(|| User::start_scaled(name, mib, scale))?;
        Ok(Case { name, user, group, trials: Trials::default() })
    }

    fn predict(&mut self, isotherm: &Path, record: &Path, objectives: &[f64]) -> Result<()> {
        self.trials.rest = self.group.group().memory_current()? as f64;
        for objective in objectives {
            match predict(isotherm, record, *objective)? {
                Ok(predicted) => self.trials.add(predicted),
                Err(why) => println!("{} at {objective} % a minute: {why}", self.name),
            }
        }
        Ok(())
    }

    /// Sets the next limit.
    fn begin(&mut self) -> Result<()> {
        match self.trials.begin() {
            Some(limit) => self.group.move_to(limit as u64, self.trials.rest as u64 / 50),
            None => Ok(()),
        }
    }

    /// Notes the faults per second at the limit.
    fn note(&mut self, faults: f64) {
        for tried in self.trials.note(faults * PAGE_SIZE as f64 * MINUTE) {
            let Tried { limit, percent } = tried;
            eprintln!("{}: {:.1} MiB, {percent:.1} % a minute", self.name, limit / MIB);
        }
    }
}

fn predict(isotherm: &Path, record: &Path, objective: f64) -> Result<Result<Predicted, String>> {
    let mut command = Command::new(isotherm);
    command.args(["report", "need", "--json", "--objective", &objective.to_string(), "-i"]);
    let need: Value = serde_json::from_slice(&command.arg(record).output()?.stdout)?;
    let row = &need["needs"][0];
    if let Some(why) = row["refused"].as_str() {
        return Ok(Err(why.to_owned()));
    }
    let verdict = &row["verdict"];
    let figure = |key: &str| verdict["at"][key].as_f64().context("no figure");
    Ok(Ok(Predicted {
        objective,
        kept: figure("kept_bytes")?,
        saved: figure("saved_bytes")?,
        is_cliff: verdict["is_cliff"].as_bool().context("no verdict")?,
    }))
}

fn main() -> Result<()> {
    user::run_if_asked()?;
    let o = Options::parse();
    ensure!(o.objectives.is_sorted(), "--objectives must ascend, for example 5,20,60");
    let isotherm = beside()?;
    let _swap = Swap::start(4 << 30)?;
    eprintln!("if this program is killed, restore its changes by hand: {}", Swap::HOW_TO_REMOVE);
    let dir = tempfile::tempdir()?;
    let scale = Scale { size: o.size, time: o.time };
    let wanted = |name: &str| o.only.as_deref().is_none_or(|only| only == name);
    let workloads = WORKLOADS.iter().filter(|(name, _)| wanted(name));
    let cases = workloads.map(|(name, mib)| Case::start(name, *mib, scale));
    let mut cases = cases.collect::<Result<Vec<Case>>>()?;
    sleep(Duration::from_secs(5));
    let of = |case: &Case| dir.path().join(case.name);
    let recorders = cases.iter().map(|case| record(&isotherm, &case.user, &of(case), o.record));
    for mut recorder in recorders.collect::<Result<Vec<ChildGuard>>>()? {
        ensure!(recorder.0.wait()?.success(), "a recorder failed");
    }
    for case in &mut cases {
        let path = of(case);
        case.predict(&isotherm, &path, &o.objectives)?;
    }
    while cases.iter().any(|case| case.trials.next().is_some()) {
        cases.iter_mut().try_for_each(Case::begin)?;
        sleep(Duration::from_secs(o.settle));
        let before = faults(&cases)?;
        sleep(Duration::from_secs(o.measure));
        let after = faults(&cases)?;
        for ((case, before), after) in cases.iter_mut().zip(before).zip(after) {
            case.note((after - before) as f64 / o.measure as f64);
        }
    }
    print(&cases)
}

/// Major faults of each workload so far.
fn faults(cases: &[Case]) -> Result<Vec<u64>> {
    cases.iter().map(|case| case.user.major_faults()).collect()
}

fn print(cases: &[Case]) -> Result<()> {
    println!(
        "{:<16}{:>12}{:>18}{:>18}{:>10}{:>20}",
        "", "% a minute", "predicted limit", "smallest limit", "error", "cliff: said, is"
    );
    let mut errors = Vec::new();
    for case in cases {
        let rest = case.trials.rest;
        for (p, search) in &case.trials.searches {
            let Some(found) = search.found(rest, p.objective) else {
                println!("{:<16}{:>12}  no limit was too small", case.name, p.objective);
                continue;
            };
            let predicted = rest - p.saved;
            let error = (predicted - found) / (p.kept + p.saved) * 100.0;
            let is_cliff = search.broken.is_some_and(|b| b.percent > CLIFF * p.objective);
            println!(
                "{:<16}{:>12}{:>14.1} MiB{:>14.1} MiB{error:>8.1} %{:>20}",
                case.name,
                p.objective,
                predicted / MIB,
                found / MIB,
                format!("{}, {}", yes(p.is_cliff), yes(is_cliff)),
            );
            errors.push(error);
        }
    }
    ensure!(!errors.is_empty(), "no limit was found, so there is nothing to compare");
    let mean = errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64;
    let small = errors.iter().filter(|e| **e < -2.0).count();
    println!(
        "\nmean error {mean:.2} % of the resident memory; too small by more than 2 %: {small} of {}",
        errors.len()
    );
    ensure!(
        mean <= MAX_MEAN_ERROR,
        "the mean error is above {MAX_MEAN_ERROR} % of the resident memory"
    );
    ensure!(small * 20 <= errors.len(), "more than one limit in 20 is too small by more than 2 %");
    Ok(())
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}
