//! Is any data lost? A process checks and rewrites each of its words, while all its cold memory is paged out
//! repeatedly.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use isotherm_bench::toucher::{self, Toucher};
use isotherm_core::{Act, Action, Applied, Budget, PAGE_SIZE, TargetId, Work};
use isotherm_linux::swap::Swap;
use isotherm_linux::{Hold, Vaddr};

#[derive(Parser)]
struct Options {
    /// words to check, in millions
    #[arg(long, default_value_t = 1000)]
    millions: u64,
    /// memory of the target in MiB
    #[arg(long, default_value_t = 384)]
    size: u64,
    /// use huge pages, as far as they are available
    #[arg(long)]
    huge: bool,
    /// length of the second look in ms: pages that are touched within it stay
    #[arg(long, default_value_t = 5)]
    recheck: u64,
}

fn main() -> Result<()> {
    toucher::run_if_asked()?;
    let o = Options::parse();
    ensure!((1..=1 << 16).contains(&o.size), "a size of {} MiB: choose 1 to 65536", o.size);
    ensure!((1..=1_000_000).contains(&o.millions), "{} million: choose 1 to 1000000", o.millions);
    ensure!(o.recheck <= 10_000, "{} ms: choose 0 to 10000", o.recheck);
    let words = (o.size << 20) / 8;
    let rounds = (o.millions * 1_000_000).div_ceil(words);
    // The data can hardly be compressed.
    let _swap = Swap::start(o.size << 21)?;
    eprintln!("if this program is killed, restore its changes by hand: {}", Swap::HOW_TO_REMOVE);
    let mut toucher = Toucher::start(o.size << 20, Some(o.huge))?;
    let (mut ops, range) = (Vaddr::new()?, toucher.range());
    let target = ops.attach(toucher.pid())?;
    let begin = Instant::now();
    let checking = std::thread::spawn(move || toucher.wrong_words(rounds));
    let mut out = 0;
    while !checking.is_finished() {
        out += page_out(&mut ops, target, range, Duration::from_millis(o.recheck))?.applied;
    }
    let wrong = checking.join().map_err(|_| anyhow!("the checking thread has panicked"))??;
    println!("| words checked | wrong | paged out meanwhile, GiB | pages of all | time in s |");
    println!("|---|---|---|---|---|");
    println!(
        "| {} | {wrong} | {:.1} | {:.1} times | {:.0} |",
        words * rounds,
        out as f64 / (1u64 << 30) as f64,
        out as f64 / (o.size << 20) as f64,
        begin.elapsed().as_secs_f64()
    );
    ensure!(wrong == 0 && out >= PAGE_SIZE, "words were lost, or nothing was paged out");
    Ok(())
}

fn page_out(
    ops: &mut Vaddr,
    target: TargetId,
    range: isotherm_core::AddrRange,
    recheck: Duration,
) -> Result<Applied> {
    let budget = Budget { bytes: u64::MAX, time: Duration::from_secs(1) };
    let action = &Action::PageOut;
    let mut out = Vec::new();
    ops.apply(
        &[Work { action, target, range, budget, filters: &[], recheck, cause: None }],
        &mut out,
    )?;
    out.pop().context("the operations set returned no result")
}
