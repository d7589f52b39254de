//! One run.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_linux::swap::Swap;

use super::beside::Companion;
use super::config::Config;
use super::machine::{HugePages, KernelCounters, drop_caches, used};
use super::run::RunResult;
use super::sampler::{MemoryFigures, SampledProcesses, Sampler};
use super::stop::Stop;
use super::watching::{UsageMark, Watching};
use super::workload::{Length, Workload};

/// Size of swap beyond the workload's memory, in bytes.
const SPARE: u64 = 256 << 20;

/// The start or end of the measurement, with the counters at that time.
struct Moment {
    at: Instant,
    counts: KernelCounters,
    samples: usize,
    mark: Option<UsageMark>,
}

/// Interval between checks, because a process that has just ended takes a while to free its memory.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);
const MAX_LOOKS: u32 = 20;
/// Changes below this amount happen all the time, in bytes.
const STEADY_BYTES: u64 = 4 << 20;

/// The memory in use, once it hardly changes any more.
fn settled(root: &Path, stop: &Stop) -> Result<u64> {
    let mut before = used(root)?;
    for _ in 0..MAX_LOOKS {
        stop.sleep(CHECK_INTERVAL)?;
        let now = used(root)?;
        if now.abs_diff(before) < STEADY_BYTES {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

/// Runs a workload under a configuration, with dropped caches and a new swap device. Restores all changed
/// settings, also after a failure.
pub fn one(
    workload: &dyn Workload,
    config: Config,
    length: Length,
    stop: &Stop,
) -> Result<RunResult> {
    let root = Path::new("/");
    // Swap is dropped after its users, so that its contents are freed with them.
    let swap = Swap::start(workload.memory() + SPARE)?;
    let (device, mut swap) = (swap.device(), Some(swap));
    let _huge = HugePages::set(root, config.always_huge())?;
    drop_caches()?;
    let before = settled(root, stop)?;
    let place = tempfile::tempdir()?;
    let mut running = workload.start(place.path(), stop)?;
    let watching = Watching::start(config, running.pid(), running.family(), place.path())?;
    let watched = SampledProcesses { pid: running.pid(), before, device };
    let sampler = Sampler::start(watched);
    let now = || -> Result<Moment> {
        let mark = watching.as_ref().map(Watching::mark).transpose()?;
        let (counts, samples) = (KernelCounters::read(root)?, sampler.len());
        Ok(Moment { at: Instant::now(), counts, samples, mark })
    };
    let mut moments = Vec::new();
    let mut mark = || {
        moments.push(now()?);
        Ok(())
    };
    let turns = config.turns(length.slices);
    let mut beside = Companion::new(watching.as_ref(), turns, &mut swap, &mut mark);
    let done = running.work(length, &mut beside, stop)?;
    let rested = beside.rested();
    moments.push(now()?);
    let (begin, end) = moments.first().zip(moments.get(1)).context("the workload has not begun")?;
    let time = end.at.duration_since(begin.at);
    let marks = begin.mark.zip(end.mark);
    let since =
        watching.as_ref().zip(marks).map(|(w, (from, to))| w.between(from, to)).transpose()?;
    let counts = end.counts.since(begin.counts);
    let memory = sampler.mean(begin.samples..end.samples);
    let memory = MemoryFigures { used: memory.used - done.apart as f64, ..memory };
    drop(sampler);
    running.finish()?;
    watching.map_or(Ok(()), Watching::end)?;
    let share = |d: Duration| 100.0 * d.as_secs_f64() / time.as_secs_f64();
    Ok(RunResult {
        work: done.work,
        sliced: done.sliced,
        seconds: time.as_secs_f64(),
        memory,
        major_faults: counts.major_faults,
        stalls: counts.stalls,
        pressure: share(Duration::from_micros(counts.pressure)),
        own_cpu: since.map(|s| 100.0 * s.cpu.div_duration_f64(time.saturating_sub(rested))),
        acting: since.and_then(|s| s.acting).map(share),
        latency: done.latency,
        windows: since.and_then(|s| s.windows),
    })
}
