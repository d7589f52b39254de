//! The cost of actions for isotherm and for the target.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::toucher::{self, Toucher};
use isotherm_core::{Act, Action, Applied, Budget, PAGE_SIZE, Support, TargetId, Work};
use isotherm_linux::swap::Swap;
use isotherm_linux::{Hold, Vaddr};

#[derive(Parser)]
struct Options {
    /// memory of the target in MiB
    #[arg(long, default_value_t = 256)]
    size: u64,
    /// number of new targets for each figure, of which the fastest counts
    #[arg(long, default_value_t = 5)]
    times: usize,
    /// print only rows whose name begins with this
    #[arg(long, default_value = "")]
    only: String,
}

/// Pages that are touched within this time are skipped.
const RECHECK: Duration = Duration::from_millis(20);
/// Time over which the longest pause at rest is measured.
const AT_REST: Duration = Duration::from_millis(500);

/// A row of the table.
struct Case {
    name: &'static str,
    action: Action,
    /// in huge pages, in base pages, or by the setting of the machine
    huge: Option<bool>,
    /// every page whose number is a multiple of this is touched all the time; 0: none
    hot: u64,
    recheck: Duration,
    /// an action before the measurement
    first: Option<Action>,
}

fn cases() -> Vec<Case> {
    use Action::{Cold, HugePage, LruPrio, NoHugePage, PageOut, Stat, WillNeed};
    let case = |name, action| Case {
        name,
        action,
        huge: Some(false),
        hot: 0,
        recheck: Duration::ZERO,
        first: None,
    };
    let again = |case: Case| Case { recheck: RECHECK, ..case };
    vec![
        case("reading alone (stat)", Stat),
        again(case("pageout", PageOut)),
        again(Case { hot: 10, ..case("pageout, each tenth page in use", PageOut) }),
        again(Case { huge: Some(true), ..case("pageout of huge pages", PageOut) }),
        Case { first: Some(PageOut), ..case("willneed", WillNeed) },
        again(case("cold, lru_deprio", Cold)),
        case("lru_prio", LruPrio),
        Case { huge: None, hot: 1, ..case("hugepage", HugePage) },
        Case { huge: Some(true), ..case("nohugepage", NoHugePage) },
    ]
}

/// One figure of a case.
struct Measurement {
    applied: Applied,
    at_rest: Duration,
    meanwhile: Duration,
}

fn main() -> Result<()> {
    toucher::run_if_asked()?;
    let o = Options::parse();
    ensure!((16..=16_384).contains(&o.size), "a size of {} MiB: choose 16 to 16384", o.size);
    ensure!((1..=1000).contains(&o.times), "{} times: choose 1 to 1000", o.times);
    let _swap = Swap::start(o.size << 21)?;
    eprintln!("if this program is killed, restore its changes by hand: {}", Swap::HOW_TO_REMOVE);
    println!(
        "| action | done to, of {} MiB | us a page of 4 KiB | MiB/s | longest pause in ms, at rest | meanwhile |",
        o.size
    );
    println!("|---|---|---|---|---|---|");
    for case in cases().into_iter().filter(|case| case.name.starts_with(&o.only)) {
        let mut all = Vec::new();
        for _ in 0..o.times {
            all.extend(case.take(o.size << 20)?);
        }
        match all.is_empty() {
            true => eprintln!("{}: left out", case.name),
            false => println!("{}", row(&case, all)),
        }
    }
    Ok(())
}

impl Case {
    /// Measures one figure. `None` if that is not possible here.
    fn take(&self, len: u64) -> Result<Option<Measurement>> {
        let mut toucher = Toucher::start(len, self.huge)?;
        let mut ops = Vaddr::new()?;
        if let Support::No(why) = ops.supports(&self.action) {
            eprintln!("{}: {why}", self.name);
            return Ok(None);
        }
        let target = ops.attach(toucher.pid())?;
        if let Some(first) = &self.first {
            apply(&mut ops, first, target, &toucher, Duration::ZERO)?;
        }
        let mut at_rest = Duration::ZERO;
        if self.hot > 0 {
            toucher.keep_touching(self.hot)?;
            std::thread::sleep(AT_REST);
            at_rest = toucher.longest()?;
        }
        let applied = apply(&mut ops, &self.action, target, &toucher, self.recheck)?;
        Ok(Some(Measurement { applied, at_rest, meanwhile: toucher.longest()? }))
    }
}

fn apply(
    ops: &mut Vaddr,
    action: &Action,
    target: TargetId,
    toucher: &Toucher,
    recheck: Duration,
) -> Result<Applied> {
    let budget = Budget { bytes: u64::MAX, time: Duration::from_secs(600) };
    let (range, filters): (_, &[_]) = (toucher.range(), &[]);
    let mut out = Vec::new();
    ops.apply(&[Work { action, target, range, budget, filters, recheck, cause: None }], &mut out)?;
    out.pop().context("the operations set returned no result")
}

fn row(case: &Case, mut all: Vec<Measurement>) -> String {
    let longest = |of: fn(&Measurement) -> Duration| {
        let mut longest: Vec<Duration> = all.iter().map(of).filter(|_| case.hot > 0).collect();
        longest.sort();
        let median = longest.get(longest.len() / 2);
        median.map_or("-".to_owned(), |d| format!("{:.1}", d.as_secs_f64() * 1e3))
    };
    let (at_rest, meanwhile) = (longest(|t| t.at_rest), longest(|t| t.meanwhile));
    all.sort_by_key(|t| t.applied.took);
    let a = all.first().map(|t| t.applied).unwrap_or_default();
    let (pages, seconds) = (a.applied / PAGE_SIZE, a.took.as_secs_f64());
    format!(
        "| {} | {} | {:.2} | {:.0} | {at_rest} | {meanwhile} |",
        case.name,
        a.applied >> 20,
        seconds * 1e6 / pages as f64,
        (a.applied >> 20) as f64 / seconds
    )
}
