//! The speed of the simulated machine: page accesses per second of CPU time on one core. Prints one table.

use anyhow::Result;
use clap::Parser;
use isotherm_mm::Fair;
use isotherm_sim::lab::fairzone::MACHINE_TOML;
use isotherm_sim::paged::{
    MachineSpec, PagedMachine, Populate, Stream, StreamOrder, Task, Toucher,
};
use isotherm_sim::workload::{Op, Workload, WorkloadLayout};

/// 1 GiB, of which each page is touched as often as possible.
const TOUCHED: &str = "about = 'all at random'\nislands = 0\n\
    region = [{ name = 'r', size = '1G' }]\n[[phase]]\nname = 'p'\nduration = '2s'\n\
    access = [{ region = 'r', rate = 'max' }]\n";

#[derive(Debug, Parser)]
struct Options {
    /// Number of measurements, of which the best one counts
    #[arg(long, default_value_t = 5)]
    times: u32,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The number of accesses, and their time.
type Measured = (u64, f64);
/// Measures accesses of a kind, from a seed.
type Measure = fn(u64) -> Result<Measured>;

fn main() -> Result<()> {
    let o = Options::parse();
    println!("| accesses | pages | CPU seconds | 10^6 a second |\n|---|---|---|---|");
    let kinds: [(&str, Measure); 4] = [
        ("of a process of 1 GiB, at random", touched),
        ("of a file of 4 GiB in memory, one after the other", cached),
        ("of a file of 16 GiB, read on 8 GiB", |seed| streamed(seed, &[Op::Read])),
        ("of a file of 16 GiB, written and read on 8 GiB", |seed| {
            streamed(seed, &[Op::Write, Op::Read])
        }),
    ];
    for (name, measure) in kinds {
        let runs = (0..o.times.max(1)).map(|_| measure(o.seed)).collect::<Result<Vec<_>>>()?;
        let best = runs.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 1.0));
        let rate = best.0 as f64 / best.1 / 1e6;
        println!("| {name} | {} | {:.2} | {rate:.1} |", best.0, best.1);
    }
    Ok(())
}

fn machine(seed: u64) -> Result<PagedMachine> {
    Ok(PagedMachine::new(&MachineSpec::parse(MACHINE_TOML)?, Fair::Landed.rules(), seed)?)
}

/// CPU time of this process in s, without that of others.
fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Runs a task. Returns its CPU time in s.
fn timed(machine: &mut PagedMachine, task: impl Task + 'static) -> Result<f64> {
    let begin = cpu_seconds();
    machine.run(&mut [Box::new(task) as Box<dyn Task>])?;
    Ok(cpu_seconds() - begin)
}

fn touched(seed: u64) -> Result<Measured> {
    let (workload, mut m) = (Workload::parse(TOUCHED)?, machine(seed)?);
    let layout = WorkloadLayout::new(&workload, seed);
    let process = m.add_process(usize::try_from(layout.len() / 4096)?);
    timed(&mut m, Populate::new(process))?;
    let (before, phase) = (m.counts().touches, &workload.phases[0]);
    let of = (&workload, &layout);
    let toucher = Toucher::new(&m, process, of, (&phase.accesses[0], 0), phase.duration);
    let seconds = timed(&mut m, toucher)?;
    Ok((m.counts().touches - before, seconds))
}

fn cached(seed: u64) -> Result<Measured> {
    let mut m = machine(seed)?;
    let file = m.add_file(1 << 20);
    let reader =
        |m: &PagedMachine| Stream::new(m, file, Op::Read, StreamOrder::Sequential, 1 << 20);
    let task = reader(&m);
    timed(&mut m, task)?;
    let task = reader(&m);
    Ok((1 << 20, timed(&mut m, task)?))
}

fn streamed(seed: u64, ops: &[Op]) -> Result<Measured> {
    let (mut m, pages) = (machine(seed)?, 4 << 20);
    let file = m.add_file(pages);
    let mut seconds = 0.0;
    for &op in ops {
        let task = Stream::new(&m, file, op, StreamOrder::Sequential, pages as u64);
        seconds += timed(&mut m, task)?;
    }
    Ok((ops.len() as u64 * pages as u64, seconds))
}
