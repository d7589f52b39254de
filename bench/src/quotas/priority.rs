//! Whether the coldest memory goes first.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use isotherm_core::PAGE_SIZE;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::run::{COLD_SECONDS, RunParameters};
use super::{BrokenBounds, swapped};
use crate::fading::Fading;

/// Number of times, one after the other, at which memory falls idle.
const TIMES: u64 = 30;
const APART: Duration = Duration::from_secs(3);
/// Stretches that fall idle at each time, and their pages.
const STRETCHES: u64 = 8;
const PAGES: u64 = 64;

struct Case {
    name: &'static str,
    scheme: &'static str,
    options: &'static [&'static str],
    /// least share of the coldest tenth in the paged-out memory, in percent
    least: f64,
}

/// A random result has no bound.
const CASES: [Case; 3] = [
    Case { name: "age = 1, --windows", scheme: AGE, options: &["--windows"], least: 90.0 },
    Case { name: "age = 1", scheme: AGE, options: &[], least: 90.0 },
    Case { name: "none", scheme: "", options: &[], least: 0.0 },
];
const AGE: &str = "weights = { age = 1 },";

/// Prints how old the paged-out memory is.
pub fn priority(bounds: &mut BrokenBounds) -> Result<()> {
    println!("| weights | cold, MiB | gone, MiB | of those, of the coldest tenth, % | regions |");
    println!("|---|---|---|---|---|");
    // All cases run at once, because each waits until memory has aged.
    let reported = std::thread::scope(|scope| {
        let runs: Vec<_> =
            CASES.iter().zip(1..).map(|(c, seed)| scope.spawn(move || c.take(seed))).collect();
        let reported =
            runs.into_iter().map(|r| r.join().map_err(|_| anyhow!("a run has panicked"))?);
        reported.collect::<Result<Vec<PagedOut>>>()
    })?;
    for (case, told) in CASES.iter().zip(reported) {
        let share = 100.0 * told.coldest as f64 / told.gone.max(1) as f64;
        println!(
            "| {} | {} | {:.1} | {share:.1} | {} |",
            case.name,
            (told.all * PAGE_SIZE) >> 20,
            (told.gone * PAGE_SIZE) as f64 / f64::from(1 << 20),
            told.regions
        );
        bounds
            .expect(share >= case.least, || format!("{}: {share:.1} % of the coldest", case.name));
        let tenth = told.all / 10;
        bounds.expect(told.gone == tenth, || {
            format!("{}: {} pages gone, not {tenth}", case.name, told.gone)
        });
    }
    Ok(())
}

/// Numbers of pages.
struct PagedOut {
    all: u64,
    gone: u64,
    /// pages of the coldest tenth among those paged out
    coldest: u64,
    regions: usize,
}

impl Case {
    fn take(&self, seed: u64) -> Result<PagedOut> {
        let ends = ends(seed);
        let mut target = Fading::start(PAGES, &ends)?;
        let all = target.range().len() / PAGE_SIZE;
        // The first turn comes at once, when no memory is cold, and the next one when all memory is.
        let idle = APART * u32::try_from(TIMES)? + Duration::from_secs(2 * COLD_SECONDS);
        let scheme = format!(
            "apply_interval = \"{}s\"\nquota = {{ {} bytes = {}, reset = \"1h\" }}",
            idle.as_secs(),
            self.scheme,
            all / 10 * PAGE_SIZE
        );
        let on = [(target.pid(), target.range())];
        let length = idle + Duration::from_secs(4);
        let run = RunParameters { scheme: &scheme, on: &on, length, options: self.options };
        let ran = std::thread::scope(|scope| {
            let running = scope.spawn(|| run.run());
            target.begin()?;
            running.join().map_err(|_| anyhow!("the run has panicked"))?
        })?;
        let touched = target.last_touches()?;
        let mut sorted = touched.clone();
        sorted.sort_unstable();
        let newest = *sorted.get(usize::try_from(all / 10)? - 1).context("no pages")?;
        let swapped = swapped::pages(target.pid(), target.range())?;
        let gone = || touched.iter().zip(&swapped).filter(|(_, swapped)| **swapped);
        Ok(PagedOut {
            all,
            gone: gone().count() as u64,
            coldest: gone().filter(|(at, _)| **at <= newest).count() as u64,
            regions: ran.log.len(),
        })
    }
}

/// The times at which the stretches fall idle, in random order.
fn ends(seed: u64) -> Vec<Duration> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut ends: Vec<(u64, Duration)> = (1..=TIMES)
        .flat_map(|i| (0..STRETCHES).map(move |_| APART * u32::try_from(i).unwrap_or(0)))
        .map(|end| (random.next_u64(), end))
        .collect();
    ends.sort_unstable();
    ends.into_iter().map(|(_, end)| end).collect()
}
