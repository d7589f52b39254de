//! What does reading all accessed bits of a process take, and clearing them in long runs?

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use isotherm_bench::load::{self, Load, Shape};
use isotherm_core::{Look, Space};
use isotherm_linux::sys::thread_cpu;
use isotherm_linux::{Clearing, Hold, Reading, Vaddr};

#[derive(Parser)]
struct Options {
    /// memory of the target in MiB; may be given several times
    #[arg(long, default_values_t = [1024, 4096, 8192])]
    size: Vec<u64>,
    /// how often each figure is taken: the median counts
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// how page tables are read
    #[arg(long, default_value = "direct")]
    reading: ReadingName,
}

#[derive(Clone, Copy, ValueEnum)]
enum ReadingName {
    Direct,
    Probe,
    Iterator,
}

fn main() -> Result<()> {
    load::run_if_asked()?;
    let o = Options::parse();
    ensure!((1..=1000).contains(&o.times), "{} times: choose 1 to 1000", o.times);
    let reading = match o.reading {
        ReadingName::Direct => Reading::Direct,
        ReadingName::Probe => Reading::Probe,
        ReadingName::Iterator => Reading::Iterator,
    };
    for mib in &o.size {
        let load = Load::start(Shape::of(mib << 20))?;
        let mut ops = Vaddr::with(reading, Clearing::Cold)?;
        let target = ops.attach(load.pid())?;
        ops.mappings(target, &mut Vec::new())?;
        let mut out = Vec::new();
        let mut cold = Vec::new();
        let mut warm = Vec::new();
        let mut trash = vec![1u8; 256 << 20];
        for _ in 0..o.times {
            trash.iter_mut().step_by(64).for_each(|b| *b = b.wrapping_add(1));
            for times in [&mut cold, &mut warm] {
                out.clear();
                let begin = thread_cpu();
                ops.survey().context("no survey")?.survey(target, &[load.all()], &mut out)?;
                times.push(thread_cpu() - begin);
            }
        }
        let median = |v: &mut Vec<Duration>| {
            v.sort();
            v[v.len() / 2].as_secs_f64() * 1e3 / (*mib as f64 / 1024.0)
        };
        println!(
            "{mib} MiB: {} blocks, cold {:.3} warm {:.3} ms/GiB",
            out.len(),
            median(&mut cold),
            median(&mut warm)
        );
    }
    Ok(())
}
