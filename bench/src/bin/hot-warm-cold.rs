//! A process of 1 GiB with 64 MiB hot and 128 MiB touched once a second: how well are they found,
//! and what does it cost?

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use isotherm_bench::load::{self, HOT, Load, TOTAL};
use isotherm_bench::score::{Score, score};
use isotherm_core::{AddrRange, Attrs, Heat, Monitor, Source, Step};
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

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some(load::ARGUMENT) {
        return load::run();
    }
    let o = Options::parse();
    let load = Load::start()?;
    let mut ops = Vaddr::new()?;
    let target = ops.attach(load.pid())?;
    let attrs = Attrs {
        sample: Duration::from_millis(o.sample),
        aggr: Duration::from_millis(o.aggr),
        split_parts: o.parts,
        clear_every: o.every,
        split_uniform: o.uniform,
        window: o.window << 10,
        ..Attrs::default()
    };
    let mut monitor = Monitor::new(ops, attrs, &[target], o.seed)?;
    let (begin, cpu) = (sys::monotonic(), sys::own_cpu());
    let end = begin + Duration::from_secs(o.seconds);
    let (mut scores, mut regions, mut clears): (Vec<Score>, usize, u64) = (Vec::new(), 0, 0);
    let mut snapshots = 0;
    while sys::monotonic() < end {
        match monitor.step(sys::monotonic())? {
            Step::Wait(until) => std::thread::sleep(until.since(sys::monotonic())),
            Step::End(why) => anyhow::bail!("the load ended: {why:?}"),
            Step::Snapshot(s) => {
                let hot = score(&s, Heat::Hot, load.at(AddrRange::new(0, TOTAL)), load.at(HOT));
                if o.verbose {
                    let b = s.bytes(&Default::default());
                    println!(
                        "{:6.2} s {hot:.3?} {} regions {b:?} {:?}",
                        s.end.since(begin).as_secs_f64(),
                        s.nr_regions(),
                        s.cost
                    );
                }
                if o.verbose && hot.precision < 0.985 {
                    let t = Default::default();
                    let base = load.at(AddrRange::new(0, TOTAL));
                    for r in s.targets.iter().flat_map(|v| &v.regions) {
                        if r.heat(&t) == Heat::Hot
                            && r.range.intersect(&base).is_some()
                            && r.range
                                .intersect(&load.at(HOT))
                                .is_none_or(|i| i.len() < r.range.len())
                        {
                            println!(
                                "   false: {:.3}..{:.3} MiB {:?} {} bp age {:?}",
                                (r.range.start as f64 - base.start as f64) / 1048576.0,
                                (r.range.end as f64 - base.start as f64) / 1048576.0,
                                r.rate,
                                r.accesses_bp,
                                r.age
                            );
                        }
                    }
                }
                regions += s.nr_regions();
                clears += s.cost.clears;
                snapshots += 1;
                if s.end.since(begin) > Duration::from_secs(2) {
                    scores.push(hot);
                }
            }
        }
    }
    let elapsed = sys::monotonic().since(begin).as_secs_f64();
    let percent = (sys::own_cpu() - cpu).as_secs_f64() / elapsed * 100.0;
    let least = |f: fn(&Score) -> f64| scores.iter().map(f).fold(1.0, f64::min);
    let mean = |f: fn(&Score) -> f64| scores.iter().map(f).sum::<f64>() / scores.len() as f64;
    println!(
        "hot, {} snapshots after 2 s: precision mean {:.3} least {:.3}, recall mean {:.3} least {:.3}",
        scores.len(),
        mean(|s| s.precision),
        least(|s| s.precision),
        mean(|s| s.recall),
        least(|s| s.recall),
    );
    println!(
        "cost: {percent:.2} % of one CPU, {:.0} cleared ranges a second, {:.0} regions",
        clears as f64 / elapsed,
        regions as f64 / f64::from(snapshots),
    );
    Ok(())
}
