//! Do schemes keep within their quotas on real processes, continue where they stopped, and begin with the oldest?

use anyhow::Result;
use clap::{Parser, ValueEnum};
use isotherm_bench::quotas::{BrokenBounds, priority, resume, size, time};
use isotherm_bench::{fading, toucher};
use isotherm_linux::swap::Swap;

#[derive(Parser)]
struct Options {
    /// only this table
    #[arg(long)]
    only: Option<Table>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    Time,
    Size,
    Resume,
    Priority,
}

/// Larger than the memory that any of them pages out, whose content compresses well.
const SWAP: u64 = 6 << 30;

fn main() -> Result<()> {
    toucher::run_if_asked()?;
    fading::run_if_asked()?;
    let o = Options::parse();
    let _swap = Swap::start(SWAP)?;
    eprintln!("if this program is killed, restore its changes by hand: {}", Swap::HOW_TO_REMOVE);
    let mut bounds = BrokenBounds::default();
    type Print = fn(&mut BrokenBounds) -> Result<()>;
    let tables: [(Table, Print); 4] = [
        (Table::Time, time),
        (Table::Size, size),
        (Table::Resume, resume),
        (Table::Priority, priority),
    ];
    for (_, print) in tables.iter().filter(|(table, _)| o.only.is_none_or(|only| only == *table)) {
        print(&mut bounds)?;
        println!();
    }
    bounds.check()
}
