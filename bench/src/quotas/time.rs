//! A quota of time.

use std::time::Duration;

use anyhow::{Context, Result};

use super::audit::windows;
use super::run::{COLD_SECONDS, RunParameters};
use super::{BrokenBounds, swapped};
use crate::toucher::Toucher;

/// Quotas per second, in ms.
const QUOTAS: [u32; 3] = [10, 50, 200];
const WINDOWS: u32 = 12;
/// CPU time of isotherm outside of its quota, in ms per second: the budget for watching, and following processes.
const BESIDE: f64 = 15.0;
/// More than can be paged out in a ms, in KiB.
const SPEED: u64 = 1280;

/// Prints how much of its quota of time a scheme uses.
pub fn time(bounds: &mut BrokenBounds) -> Result<()> {
    println!(
        "| quota in ms a second | windows | the worst, % of the quota | the median, % | MiB in the \
         median window | CPU in ms a second: watching alone | acting, by the log | beyond both |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    QUOTAS.iter().try_for_each(|&ms| row(ms, bounds))
}

fn row(ms: u32, bounds: &mut BrokenBounds) -> Result<()> {
    let mut target = Toucher::start((u64::from(WINDOWS * ms) * SPEED) << 10, Some(false))?;
    target.rest()?;
    let on = [(target.pid(), target.range())];
    let length = Duration::from_secs(u64::from(WINDOWS) + COLD_SECONDS + 1);
    let run = |time: u32| {
        let scheme = format!("quota = {{ time = \"{time}ms\" }}");
        RunParameters { scheme: &scheme, on: &on, length, options: &[] }.run()
    };
    let idle = run(0)?;
    let ran = run(ms)?;
    // A window that paged out everything need not use all of its time.
    let all = windows(&ran.log);
    let sufficed = all.iter().filter(|w| w.so_far < target.range().len());
    let share = |took: Duration| took.as_secs_f64() * 1e5 / f64::from(ms);
    let mut shares: Vec<f64> = sufficed.map(|w| share(w.took)).collect();
    shares.sort_by(f64::total_cmp);
    let worst = all.iter().map(|w| share(w.took)).fold(0.0, f64::max);
    let median = *shares.get(shares.len() / 2).context("there was too little to do")?;
    let mut applied: Vec<u64> = all.iter().map(|w| w.applied >> 20).collect();
    applied.sort_unstable();
    let took: Duration = all.iter().map(|w| w.took).sum();
    let a_second = |t: Duration| t.as_secs_f64() * 1e3 / length.as_secs_f64();
    let (watching, acting) = (a_second(idle.cpu), a_second(took));
    println!(
        "| {ms} | {} | {worst:.1} | {median:.1} | {} | {watching:.1} | {acting:.1} | {:.1} |",
        shares.len(),
        applied.get(applied.len() / 2).copied().unwrap_or_default(),
        a_second(ran.cpu) - watching - acting
    );
    let [out, logged] = [swapped::of_process(target.pid())?, all.last().map_or(0, |w| w.so_far)];
    bounds.expect(out == logged, || format!("{ms} ms: {logged} bytes by the log, {out} in swap"));
    bounds.expect(worst <= 110.0, || format!("{ms} ms: a window of {worst:.1} % of the time"));
    let (cpu, most) = (a_second(ran.cpu), f64::from(ms) + BESIDE);
    bounds.expect(cpu <= most, || format!("{ms} ms: {cpu:.1} ms of CPU a second"));
    bounds.expect(median > 80.0, || format!("{ms} ms: {median:.1} % of the time is used"));
    Ok(())
}
