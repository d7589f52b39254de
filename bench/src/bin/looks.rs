//! The cost of reading all accessed bits of a process, and of clearing them in long runs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use isotherm_bench::toucher::{self, Toucher};
use isotherm_core::{AddrRange, Cost, Look, PAGE_SIZE, Space, Survey, TargetId};
use isotherm_linux::{Clearing, Hold, Vaddr, WalkMethod};

#[derive(Parser)]
struct Options {
    /// memory of the target in MiB; may be given several times
    #[arg(long, default_values_t = [1024, 4096, 8192])]
    size: Vec<u64>,
    /// number of measurements for each figure, of which the median counts
    #[arg(long, default_value_t = 15)]
    times: usize,
    /// the way to read page tables
    #[arg(long, default_value = "direct")]
    by: By,
    /// use huge pages, as far as they are available
    #[arg(long)]
    huge: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    Direct,
    Probe,
    Iterator,
}

/// The pages that are touched before each clear: a share of them, from the first on or scattered.
const TOUCHED: [(u64, bool); 7] =
    [(0, false), (5, false), (20, false), (50, false), (100, false), (1, true), (5, true)];

fn main() -> Result<()> {
    toucher::run_if_asked()?;
    let o = Options::parse();
    ensure!((1..=1000).contains(&o.times), "{} times: choose 1 to 1000", o.times);
    println!("| target | touched | read, cold | read, warm | clear | lost | shootdowns |");
    println!("|---|---|---|---|---|---|---|");
    for &mib in &o.size {
        ensure!((16..=1 << 20).contains(&mib), "a size of {mib} MiB: choose 16 to 1048576");
        let mut bench = Bench::start(mib << 20, &o)?;
        for (percent, strewn) in TOUCHED {
            let row = bench.measure(percent, strewn, o.times)?;
            println!("| {mib} MiB | {percent} %{} | {row}", if strewn { " strewn" } else { "" });
        }
    }
    Ok(())
}

struct Bench {
    toucher: Toucher,
    ops: Vaddr,
    target: TargetId,
    /// memory that is larger than any cache
    trash: Vec<u8>,
}

impl Bench {
    fn start(len: u64, o: &Options) -> Result<Self> {
        let reading = match o.by {
            By::Direct => WalkMethod::Direct,
            By::Probe => WalkMethod::Probe,
            By::Iterator => WalkMethod::Iterator,
        };
        let toucher = Toucher::start(len, Some(o.huge))?;
        let mut ops = Vaddr::with(reading, Clearing::Cold)?;
        let target = ops.attach(toucher.pid())?;
        ops.mappings(target, &mut Vec::new())?;
        Ok(Bench { toucher, ops, target, trash: vec![1; 256 << 20] })
    }

    /// The medians of reading everything with empty caches and again, and of clearing everything, in CPU time
    /// per GiB.
    fn measure(&mut self, percent: u64, strewn: bool, times: usize) -> Result<String> {
        let range = self.toucher.range();
        let pages = range.len() / PAGE_SIZE * percent / 100;
        let step = if strewn { 100 / percent.max(1) } else { 1 };
        let mut costs: [Vec<Cost>; 3] = Default::default();
        for _ in 0..times {
            self.toucher.touch(pages, step)?;
            self.trash.iter_mut().step_by(64).for_each(|b| *b = b.wrapping_add(1));
            for cost in costs.iter_mut().take(2) {
                let read = |s: &mut dyn Survey, t, r: &[AddrRange]| s.survey(t, r, &mut Vec::new());
                cost.push(self.cost(range, read)?);
            }
            let clear = |s: &mut dyn Survey, t, r: &[AddrRange]| s.clear(t, r, &mut Vec::new());
            costs[2].push(self.cost(range, clear)?);
        }
        let gib = range.len() as f64 / (1u64 << 30) as f64;
        let [cold, warm, clear] = costs.each_mut().map(|costs| {
            costs.sort_by_key(|c| c.cpu);
            costs.get(costs.len() / 2).copied().unwrap_or_default()
        });
        let ms = |d: Duration| format!("{:.2}", d.as_secs_f64() * 1e3 / gib);
        let times = [cold.cpu, warm.cpu, clear.cpu, clear.lost].map(ms);
        let clears = clear.clears as f64 / gib;
        Ok(format!("{} | {clears:.0} |", times.join(" | ")))
    }

    /// The cost of one call, without the earlier work.
    fn cost<E: Into<anyhow::Error>>(
        &mut self,
        range: AddrRange,
        call: impl Fn(&mut dyn Survey, TargetId, &[AddrRange]) -> Result<Cost, E>,
    ) -> Result<Cost> {
        let survey = Look::survey(&mut self.ops).context("this way to look reads windows only")?;
        survey.survey(self.target, &[], &mut Vec::new())?;
        call(survey, self.target, &[range]).map_err(Into::into)
    }
}
