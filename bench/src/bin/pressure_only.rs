//! `reclaim --aim` compared with a controller that knows only memory pressure, at equal refaults.
//!
//! The controller follows the rule of TMO (Weiner et al., ASPLOS 2022), which is that of senpai with the kernel's
//! proactive reclaim: each interval the kernel reclaims a share of the group's memory, times 1 - pressure / target,
//! and nothing above the target. The pressure is the share of time for which the workload waits for its pages; it
//! has one thread, for which this is the kernel's `some`.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use isotherm_bench::limited::Limited;
use isotherm_bench::program::{ChildGuard, beside, reclaim_by_aim};
use isotherm_bench::user::{self, User, WORKLOADS, most_saved};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::cgroup::{Limit, Version};
use isotherm_linux::proc;
use isotherm_linux::swap::Swap;

#[derive(Parser)]
struct Options {
    /// objective of `reclaim --aim`: memory that may come back per minute, in percent of the memory that stays
    #[arg(long, default_value_t = 20.0)]
    percent: f64,
    /// minutes before each measurement
    #[arg(long, default_value_t = 5)]
    settle: u64,
    /// minutes before that, in which the controller reclaims without corrections of its target
    #[arg(long, default_value_t = 3)]
    begin: u64,
    /// minutes of each measurement
    #[arg(long, default_value_t = 4)]
    measure: u64,
    /// interval of the controller in s
    #[arg(long, default_value_t = 6)]
    interval: u64,
    /// share of the memory that it reclaims per interval without pressure
    #[arg(long, default_value_t = 0.02)]
    ratio: f64,
}

const MIB: f64 = 1_048_576.0;
const NO_LIMIT: u64 = 8 << 30;
/// The target is corrected each minute, by at most this factor, until refaults are equal.
const CORRECTION: f64 = 2.0;

/// What came of one way to reclaim.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    /// memory in swap in bytes
    saved: f64,
    /// major faults per second
    refaults: f64,
    /// the share of time for which touches waited
    stalled: f64,
}

/// A workload in its group.
struct Case {
    name: &'static str,
    // Dropped before its group.
    user: User,
    group: Limited,
    /// pressure to aim at, as a share of the time
    target: f64,
}

fn main() -> Result<()> {
    user::run_if_asked()?;
    let o = Options::parse();
    ensure!(
        o.interval > 0 && o.measure > 0 && o.ratio > 0.0,
        "the times and the ratio are above 0"
    );
    let isotherm = beside()?;
    let _swap = Swap::start(2 << 30)?;
    eprintln!("if this program is killed, restore its changes by hand: {}", Swap::HOW_TO_REMOVE);
    let aimed = by_aim(&isotherm, &o)?;
    let pressed = by_pressure(&aimed, &o)?;
    println!(
        "saved memory, and in brackets the most that any policy can save at the same refaults"
    );
    println!("{:<16}{:>32}{:>32}{:>10}", "", "reclaim --aim", "by pressure", "ratio");
    let mut ratios = Vec::new();
    for ((&(name, mib), aimed), pressed) in WORKLOADS.iter().zip(&aimed).zip(&pressed) {
        let ratio = aimed.saved / pressed.saved.max(1.0);
        let cell = |of: &Outcome| -> Result<String> {
            let most = most_saved(name, mib, of.refaults)?;
            Ok(format!("{:.1} MiB ({:.1}), {:.1}/s", of.saved / MIB, most / MIB, of.refaults))
        };
        println!("{name:<16}{:>32}{:>32}{ratio:>10.2}", cell(aimed)?, cell(pressed)?);
        ratios.push(ratio);
    }
    let mean = ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64;
    println!(
        "\nsaved by the aim, as a multiple of what pressure alone saves: {:.2} (geometric mean)",
        mean.exp()
    );
    Ok(())
}

/// Starts the workloads, with all their memory resident.
fn start() -> Result<Vec<Case>> {
    let start = |(name, mib): &(&'static str, u64)| {
        let group = Limited::named(name, NO_LIMIT)?;
        let user = group.within(|| User::start(name, *mib))?;
        Ok(Case { name, user, group, target: 0.0 })
    };
    let cases = WORKLOADS.iter().map(start).collect();
    sleep(Duration::from_secs(5));
    cases
}

/// `reclaim --aim`.
fn by_aim(isotherm: &Path, o: &Options) -> Result<Vec<Outcome>> {
    let mut cases = start()?;
    let aim = format!("refault {}%", o.percent);
    let running = cases.iter().map(|case| reclaim_by_aim(isotherm, case.user.pid(), &aim));
    let running = running.collect::<Result<Vec<ChildGuard>>>()?;
    sleep(Duration::from_secs(60 * o.settle));
    let outcomes = measure(&mut cases, 60 * o.measure, |_| Ok(()))?;
    drop(running);
    Ok(outcomes)
}

/// The controller, with targets at which as much comes back as by the aim.
fn by_pressure(aimed: &[Outcome], o: &Options) -> Result<Vec<Outcome>> {
    let mut cases = start()?;
    // Without faults there is no price: that of a usual one.
    let price = |of: &Outcome| if of.refaults > 1.0 { of.stalled / of.refaults } else { 20e-6 };
    for (case, aimed) in cases.iter_mut().zip(aimed) {
        case.target = aimed.refaults.max(1.0) * price(aimed);
    }
    let mut controller = Controller::new(&mut cases, o)?;
    // As long as it has far too little, a correction of its target would say nothing.
    measure(&mut cases, 60 * o.begin, |cases| controller.turn(cases))?;
    for _ in 0..o.settle {
        let seen = measure(&mut cases, 60, |cases| controller.turn(cases))?;
        for ((case, aimed), seen) in cases.iter_mut().zip(aimed).zip(&seen) {
            let factor = aimed.refaults.max(1.0) / seen.refaults.max(1.0);
            case.target *= factor.clamp(1.0 / CORRECTION, CORRECTION);
            eprintln!("{}: {seen:?}, next target {:.5}", case.name, case.target);
        }
    }
    measure(&mut cases, 60 * o.measure, |cases| controller.turn(cases))
}

/// What comes of `seconds`, in each of which `turn` is called.
fn measure(
    cases: &mut [Case],
    seconds: u64,
    mut turn: impl FnMut(&mut [Case]) -> Result<()>,
) -> Result<Vec<Outcome>> {
    let begin = Instant::now();
    let before = counts(cases)?;
    let mut saved = vec![0.0; cases.len()];
    for second in 1..=seconds {
        turn(cases)?;
        sleep(Duration::from_secs(second).saturating_sub(begin.elapsed()));
        for (case, saved) in cases.iter().zip(&mut saved) {
            *saved += proc::swapped("/".as_ref(), case.user.pid())? as f64 / seconds as f64;
        }
    }
    let time = begin.elapsed().as_secs_f64();
    let after = counts(cases)?.into_iter().zip(before);
    let outcome = |((after, before), saved): ((Counts, Counts), f64)| {
        let stalled = after.stalled.saturating_sub(before.stalled).as_secs_f64();
        let faults = after.faults.saturating_sub(before.faults);
        Outcome { saved, refaults: faults as f64 / time, stalled: stalled / time }
    };
    Ok(after.zip(saved).map(outcome).collect())
}

/// Major faults of a workload so far, and the time for which it waited.
struct Counts {
    faults: u64,
    stalled: Duration,
}

fn counts(cases: &mut [Case]) -> Result<Vec<Counts>> {
    let count = |case: &mut Case| {
        Ok(Counts { faults: case.user.major_faults()?, stalled: case.user.idle()?.stalled })
    };
    cases.iter_mut().map(count).collect()
}

/// Reclaims by pressure alone.
struct Controller {
    interval: Duration,
    ratio: f64,
    last: Instant,
    stalled: Vec<Duration>,
}

impl Controller {
    fn new(cases: &mut [Case], o: &Options) -> Result<Self> {
        let stalled = counts(cases)?.into_iter().map(|counts| counts.stalled).collect();
        let interval = Duration::from_secs(o.interval);
        Ok(Controller { interval, ratio: o.ratio, last: Instant::now(), stalled })
    }

    /// Reclaims from each group, if the interval is over.
    fn turn(&mut self, cases: &mut [Case]) -> Result<()> {
        let time = self.last.elapsed();
        if time + Duration::from_millis(500) < self.interval {
            return Ok(());
        }
        self.last = Instant::now();
        for (case, before) in cases.iter_mut().zip(&mut self.stalled) {
            let stalled = case.user.idle()?.stalled;
            let pressure = (stalled - std::mem::replace(before, stalled)).as_secs_f64();
            let spare = 1.0 - pressure / time.as_secs_f64() / case.target;
            let used = case.group.group().memory_current()?;
            let bytes = used as f64 * self.ratio * spare.max(0.0);
            reclaim(&case.group, bytes as u64, used)?;
        }
        Ok(())
    }
}

/// Lets the kernel reclaim from a group; without `memory.reclaim` by a limit that holds for a moment.
fn reclaim(group: &Limited, bytes: u64, used: u64) -> Result<()> {
    if bytes < PAGE_SIZE {
        return Ok(());
    }
    if group.version() == Version::V2 {
        group.group().reclaim(bytes)?;
        return Ok(());
    }
    // If the kernel finds too little, it is less this time.
    let _ = group.group().set_memory_max(Limit::Bytes(used - bytes));
    Ok(group.group().set_memory_max(Limit::Bytes(NO_LIMIT))?)
}
