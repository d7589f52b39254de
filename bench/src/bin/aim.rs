//! Does `reclaim --aim` keep its objective, minute by minute? Each workload is reclaimed by an objective of its
//! own choice, and its major faults are compared with it.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::program::{ChildGuard, beside, reclaim_by_aim};
use isotherm_bench::user::{self, CHANGING, IDLE_TIMES_S, User, WORKLOADS};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::proc;
use isotherm_linux::swap::Swap;

#[derive(Parser)]
struct Options {
    /// memory that may come back per minute, in percent of the memory that stays
    #[arg(long, default_value_t = 20.0)]
    percent: f64,
    /// minutes to measure, after three in which ages are counted and memory is paged out
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// workloads whose load changes from minute to minute, instead of steady ones
    #[arg(long)]
    changing: bool,
}

const MIB: f64 = 1_048_576.0;
/// Bounds: the minutes that keep the objective, and the saving as a part of that of the best fixed ages.
const MIN_KEPT: f64 = 0.95;
const MIN_SAVED: f64 = 0.9;

/// What one workload has come to.
#[derive(Default, Clone)]
struct Course {
    /// sum over the minutes, in bytes
    saved: f64,
    /// bytes read back in each minute, in percent of the memory that stays
    back: Vec<f64>,
    /// bytes that are idle for each of [`IDLE_TIMES_S`]: sums over the minutes
    idle: [f64; IDLE_TIMES_S.len()],
    /// minutes in which page-out at each of [`IDLE_TIMES_S`] would have kept the objective
    kept: [usize; IDLE_TIMES_S.len()],
}

fn main() -> Result<()> {
    user::run_if_asked()?;
    let o = Options::parse();
    ensure!(o.percent > 0.0 && o.minutes > 0, "--percent and --minutes are above 0");
    let isotherm = beside()?;
    let _swap = Swap::start(2 << 30)?;
    eprintln!("if this is killed, put back what it has changed: {}", Swap::HOW_TO_REMOVE);
    let workloads = if o.changing { CHANGING.as_slice() } else { WORKLOADS.as_slice() };
    let mut users = workloads
        .iter()
        .map(|(name, mib)| User::start(name, *mib))
        .collect::<Result<Vec<User>>>()?;
    sleep(Duration::from_secs(5));
    let aim = format!("refault {}%", o.percent);
    let running = users.iter().map(|user| reclaim_by_aim(&isotherm, user.pid(), &aim));
    let running = running.collect::<Result<Vec<ChildGuard>>>()?;
    sleep(Duration::from_secs(180));
    let mut courses = vec![Course::default(); users.len()];
    for _ in 0..o.minutes {
        minute(&mut users, &mut courses, o.percent)?;
    }
    drop(running);
    println!(
        "{:<16}{:>10}{:>18}{:>22}{:>24}",
        "", "saved", "back a minute", "minutes that keep it", "best of fixed ages"
    );
    let (mut kept, mut all) = (0, 0);
    let (mut saved, mut best) = (0.0, 0.0);
    for ((name, _), course) in workloads.iter().zip(&courses) {
        let n = course.back.len();
        let good = course.back.iter().filter(|back| **back <= o.percent).count();
        (kept, all) = (kept + good, all + n);
        let fixed = course.kept.iter().position(|kept| *kept as f64 >= MIN_KEPT * n as f64);
        let fixed = fixed.map_or("none".to_owned(), |k| {
            (saved, best) = (saved + course.saved, best + course.idle[k]);
            format!("{:.0} MiB ({} s)", course.idle[k] / n as f64 / MIB, IDLE_TIMES_S[k])
        });
        println!(
            "{name:<16}{:>6.0} MiB{:>16.1} %{:>22}{:>24}",
            course.saved / n as f64 / MIB,
            course.back.iter().sum::<f64>() / n as f64,
            format!("{good} of {n}"),
            fixed
        );
    }
    println!("\nthe objective of {} % a minute was kept in {kept} of {all} minutes", o.percent);
    if best > 0.0 {
        let share = saved / best * 100.0;
        println!(
            "where a fixed age keeps it too, {share:.0} % of the memory that the best one saves was saved"
        );
    }
    ensure!(
        kept as f64 >= MIN_KEPT * all as f64,
        "the objective was broken in more than 5 % of the minutes"
    );
    ensure!(
        saved >= MIN_SAVED * best,
        "it saved less than 90 % of the memory that the best fixed ages save"
    );
    Ok(())
}

fn minute(users: &mut [User], courses: &mut [Course], percent: f64) -> Result<()> {
    let faults = users.iter().map(User::major_faults).collect::<Result<Vec<u64>>>()?;
    let before = users.iter_mut().map(User::idle).collect::<Result<Vec<_>>>()?;
    let mut saved = vec![0.0; users.len()];
    for _ in 0..60 {
        sleep(Duration::from_secs(1));
        for (user, saved) in users.iter().zip(&mut saved) {
            *saved += proc::swapped("/".as_ref(), user.pid())? as f64 / 60.0;
        }
    }
    for (i, (user, course)) in users.iter_mut().zip(courses).enumerate() {
        let bytes = (user.major_faults()? - faults[i]) as f64 * PAGE_SIZE as f64;
        let resident = proc::resident("/".as_ref(), user.pid()).context("the user has ended")?;
        let all = (resident.all + proc::swapped("/".as_ref(), user.pid())?) as f64;
        course.back.push(bytes / resident.all as f64 * 100.0);
        course.saved += saved[i];
        let now = user.idle()?;
        for k in 0..IDLE_TIMES_S.len() {
            course.idle[k] += now.idle[k];
            let returned = now.returned[k] - before[i].returned[k];
            course.kept[k] += usize::from(returned <= (all - now.idle[k]) * percent / 100.0);
        }
    }
    Ok(())
}
