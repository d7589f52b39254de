//! A process of 1 GiB with 64 MiB hot and 128 MiB touched once a second: how well are they found,
//! and what does it cost?

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use isotherm_bench::load::{self, Load, Shape};
use isotherm_bench::score::{Score, score};
use isotherm_core::{Attrs, Heat, Monitor, Snapshot, Source, Step};
use isotherm_linux::{Vaddr, sys};

#[derive(Parser)]
struct Options {
    /// seconds to record
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// sampling interval in ms
    #[arg(long, default_value_t = 20)]
    sample: u64,
    /// aggregation interval in ms
    #[arg(long, default_value_t = 400)]
    aggr: u64,
    /// parts of a split
    #[arg(long, default_value_t = 4)]
    parts: u32,
    /// sampling intervals between clears
    #[arg(long, default_value_t = 8)]
    every: u32,
    /// split uniform regions too
    #[arg(long)]
    uniform: bool,
    /// window in KiB
    #[arg(long, default_value_t = 64)]
    window: u64,
    /// seed of the monitor
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// print every snapshot
    #[arg(long)]
    verbose: bool,
}

/// What the recording has shown.
#[derive(Default)]
struct Found {
    hot: Vec<Score>,
    snapshots: usize,
    regions: usize,
    clears: u64,
}

fn main() -> Result<()> {
    load::run_if_asked()?;
    let o = Options::parse();
    let load = Load::start(Shape::of(1 << 30))?;
    let mut ops = Vaddr::new()?;
    let target = ops.attach(load.pid())?;
    let mut monitor = Monitor::new(ops, attrs(&o), &[target], o.seed)?;
    let (begin, cpu) = (sys::monotonic(), sys::own_cpu());
    let found = watch(&mut monitor, &load, Duration::from_secs(o.seconds), o.verbose)?;
    let elapsed = sys::monotonic().since(begin).as_secs_f64();
    found.print(elapsed, (sys::own_cpu() - cpu).as_secs_f64());
    Ok(())
}

fn attrs(o: &Options) -> Attrs {
    Attrs {
        sample: Duration::from_millis(o.sample),
        aggr: Duration::from_millis(o.aggr),
        split_parts: o.parts,
        clear_every: o.every,
        split_uniform: o.uniform,
        window: o.window << 10,
        ..Attrs::default()
    }
}

fn watch(
    monitor: &mut Monitor<Vaddr>,
    load: &Load,
    length: Duration,
    verbose: bool,
) -> Result<Found> {
    let begin = sys::monotonic();
    let mut found = Found::default();
    while sys::monotonic() < begin + length {
        match monitor.step(sys::monotonic())? {
            Step::Wait(until) => std::thread::sleep(until.since(sys::monotonic())),
            Step::End(why) => anyhow::bail!("the load ended: {why:?}"),
            Step::Snapshot(s) => {
                let since = s.end.since(begin);
                let hot = score(&s, Heat::Hot, load.all(), load.hot());
                if verbose {
                    println!("{:6.2} s {hot:.3?} {} regions", since.as_secs_f64(), s.nr_regions());
                }
                found.add(&s, (since > SETTLED).then_some(hot));
            }
        }
    }
    Ok(found)
}

/// Snapshots count from here on.
const SETTLED: Duration = Duration::from_secs(2);

impl Found {
    fn add(&mut self, s: &Snapshot, hot: Option<Score>) {
        self.hot.extend(hot);
        self.snapshots += 1;
        self.regions += s.nr_regions();
        self.clears += s.cost.clears;
    }

    fn print(&self, elapsed: f64, cpu: f64) {
        let least = |f: fn(&Score) -> f64| self.hot.iter().map(f).fold(1.0, f64::min);
        let mean =
            |f: fn(&Score) -> f64| self.hot.iter().map(f).sum::<f64>() / self.hot.len() as f64;
        println!(
            "hot, {} snapshots after {SETTLED:?}: precision mean {:.3} least {:.3}, recall mean {:.3} least {:.3}",
            self.hot.len(),
            mean(|s| s.precision),
            least(|s| s.precision),
            mean(|s| s.recall),
            least(|s| s.recall),
        );
        println!(
            "cost: {:.2} % of one CPU, {:.0} cleared ranges a second, {:.0} regions",
            cpu / elapsed * 100.0,
            self.clears as f64 / elapsed,
            self.regions as f64 / self.snapshots as f64,
        );
    }
}
