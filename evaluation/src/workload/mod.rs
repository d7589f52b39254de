//! The workloads: servers with a load, programs, and memory that is touched in a known way.

mod command;
mod compile;
mod contents;
mod counted;
mod counting;
pub mod kernel;
mod open_loop;
mod postgres;
mod redis;
mod resp;
mod stress;
pub mod strider;
mod synthetic;

use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_linux::sys::process_cpu;

use super::beside::Companion;
use super::config::MAX_PATIENCE;
use super::folder::FolderSettings;
use super::latency::Latency;
use super::process::ChildProcess;
use super::run::WorkDone;
use super::sampler::with_children;
use super::slices::{SLICE, Slice, Sliced, Speeds, by_twin};
use super::stop::Stop;

pub use contents::Contents;
pub use kernel::{Computation, ComputeKernel, KERNELS};
pub use open_loop::OpenLoop;
pub use postgres::Postgres;
pub use redis::{Keys, Redis, Server};

/// A workload to run.
pub trait Workload {
    /// Name in the tables.
    fn name(&self) -> &str;

    /// Approximate maximum of its memory in bytes, for which swap must have room.
    fn memory(&self) -> u64;

    /// Starts it, with files of its own at `place`, and waits until it is ready.
    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>>;
}

/// A workload that is ready; ended on drop.
pub trait Running {
    /// Its process.
    fn pid(&self) -> i32;

    /// Whether its descendants count as well.
    fn family(&self) -> bool {
        false
    }

    /// Does its work; calls `beside` at the start of the measurement. A workload that can be interrupted works
    /// slice by slice.
    fn work(
        &mut self,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult>;

    /// Ends, where it has more to do then than to be killed. Nothing is measured any more.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Durations of a workload that does not end by itself.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// before the measurement
    pub lead_in: Duration,
    /// during the measurement
    pub measured: Duration,
    /// turns of isotherm in slices, in place of that
    pub slices: u32,
}

/// The results during the measurement.
#[derive(Debug, Clone)]
pub struct WorkloadResult {
    /// work, as the workload counts it
    pub work: WorkDone,
    /// results of slices, if isotherm takes turns
    pub sliced: Option<Sliced>,
    /// latency, if it serves requests
    pub latency: Option<Latency>,
    /// resident bytes of processes that run only for comparison
    pub apart: u64,
}

impl WorkloadResult {
    /// The result of a workload that was measured as a whole, without slices.
    pub fn at_once(work: WorkDone) -> Self {
        WorkloadResult { work, sliced: None, latency: None, apart: 0 }
    }

    /// By its work a second in each slice; there may be but one.
    pub fn by_slices(slices: &[Slice<Speeds>]) -> Result<Self> {
        let slices =
            &by_twin(slices).context("the unwatched copy of the workload has done nothing")?;
        let sliced = Sliced::of(slices);
        let rate = sliced.as_ref().map(|s| s.watched).or(slices.first().map(|s| s.found));
        let rate = rate.filter(|rate| *rate > 0.0).context("the workload has done nothing")?;
        Ok(WorkloadResult { work: WorkDone::PerSecond(rate), sliced, latency: None, apart: 0 })
    }

    /// Compares the work of a process with that of its twin, which is without isotherm and without huge pages. `speeds`
    /// measures both for a slice, and is called until this time has passed.
    fn against_twin(
        time: Duration,
        mut speeds: impl FnMut(Duration) -> Result<Speeds>,
    ) -> Result<Self> {
        let n = time.div_duration_f64(SLICE).round().max(1.0) as u32;
        let mut pairs = Vec::new();
        for _ in 0..n {
            let Speeds { own, twin, .. } = speeds(SLICE)?;
            pairs.push(Slice { watched: true, found: own });
            pairs.push(Slice { watched: false, found: twin });
        }
        let both_worked = pairs.iter().all(|slice| slice.found > 0.0);
        let sliced =
            Sliced::of(&pairs).filter(|_| both_worked).context("the workload has done nothing")?;
        let work = WorkDone::PerSecond(sliced.watched);
        Ok(WorkloadResult { sliced: Some(sliced), ..WorkloadResult::at_once(work) })
    }
}

/// Time for which one of two servers is asked before the other: long enough to fill the caches
/// again, and short compared with changes of the machine's speed.
const TURN: Duration = Duration::from_millis(250);

/// A process for comparison, started when it is first required. isotherm is at rest by then.
fn started<T>(place: &mut Option<T>, start: impl FnOnce() -> Result<T>) -> Result<&mut T> {
    Ok(match place {
        Some(there) => there,
        none => none.insert(start()?),
    })
}

/// Bytes that would be freed if a process and all its descendants ended: of shared memory, their proportional
/// share.
fn memory_of(pid: i32) -> u64 {
    let of = |pid: i32| {
        let text = read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let each = with_children(Path::new("/"), pid).into_iter().filter_map(of);
    each.sum::<u64>() << 10
}

/// The counter of a process, and its CPU time.
#[derive(Debug, Clone, Copy)]
struct CounterSample {
    count: u64,
    cpu: Duration,
}

impl CounterSample {
    fn of(process: &ChildProcess, count: u64) -> Result<Self> {
        let cpu = process_cpu(process.pid());
        Ok(CounterSample {
            count,
            cpu: cpu.with_context(|| format!("{} has ended early", process.name()))?,
        })
    }

    /// CPU time since then, in s.
    fn cpu_since(self, before: CounterSample) -> f64 {
        self.cpu.saturating_sub(before.cpu).as_secs_f64()
    }

    /// Increase of the counter since then, per second of CPU time.
    fn pace_since(self, before: CounterSample) -> f64 {
        let count = self.count.saturating_sub(before.count);
        count as f64 / self.cpu_since(before).max(1e-9)
    }
}

/// The default workloads.
pub const NAMES: [&str; 17] = [
    "redis-together",
    "redis-hashed",
    "postgres",
    "compile",
    "stress-vm",
    "hot-warm-cold",
    "zipf",
    "phases",
    "moving-window",
    "rate-ladder",
    "sparse",
    "stairs",
    "zigzag",
    "thp",
    "fork",
    "huge-gain",
    "huge-waste",
];

/// They are for thp and ethp: all of them is touched all the time, so that nothing can be saved. No part
/// of the grid.
pub const FOR_HUGE_PAGES: [&str; 2] = ["huge-gain", "huge-waste"];

/// For configurations that only watch, in many repetitions: within a minute the speed of a machine can change.
/// Run if named.
const COMPILE_SHORT: &str = "compile-short";

/// A workload by its name, or from a file whose name ends in `.toml`.
pub fn find(name: &str, setup: &FolderSettings) -> Result<Box<dyn Workload>> {
    let bytes = setup.size << 20;
    let lead_in = Duration::from_secs(setup.lead_in);
    let compile = |name, seconds| compile::Compile { name, seconds, seed: setup.seed };
    let redis = |keys| Redis { keys, bytes, rate: setup.rate, seed: setup.seed };
    Ok(match name {
        "redis-together" => Box::new(redis(Keys::Together)),
        "redis-hashed" => Box::new(redis(Keys::Hashed)),
        "postgres" => Box::new(Postgres { bytes, scans: false, seed: setup.seed }),
        "compile" => Box::new(compile("compile", setup.seconds.max(compile::MIN_SECONDS))),
        COMPILE_SHORT => Box::new(compile(COMPILE_SHORT, setup.seconds)),
        "stress-vm" => Box::new(stress::Stress { bytes: bytes / 2, lead_in }),
        "huge-gain" => Box::new(strider::Strider { bytes, step: 1 }),
        "huge-waste" => Box::new(strider::Strider { bytes, step: 16 }),
        _ if name.ends_with(".toml") => Box::new(command::Other::read(Path::new(name), bytes)?),
        _ if NAMES.contains(&name) => {
            let measured = Duration::from_secs(setup.seconds).max(SLICE * setup.slices);
            let length = lead_in * MAX_PATIENCE + measured;
            Box::new(synthetic::Synthetic { name: name.to_owned(), seed: setup.seed, length })
        }
        _ => match ComputeKernel::find(name) {
            Some(kernel) => Box::new(Computation { kernel, bytes, twin: true }),
            None => bail!(
                "{name} is no workload: choose from {}, {COMPILE_SHORT}, {}, or FILE.toml",
                NAMES.join(", "),
                KERNELS.map(|kernel| kernel.name).join(", ")
            ),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_as_fast_again_as_its_twin() {
        let measured = |speeds: &[(f64, f64)]| {
            let mut speeds = speeds.iter().map(|&(own, twin)| Speeds { own, twin, busy: 1.0 });
            let time = SLICE * u32::try_from(speeds.len()).unwrap();
            WorkloadResult::against_twin(time, |_| Ok(speeds.next().unwrap()))
        };
        let sliced = measured(&[(100.0, 50.0), (60.0, 30.0)]).unwrap().sliced.unwrap();
        assert!((sliced.slowdown.value + 50.0).abs() < 1e-9, "{sliced:?}");
        assert_eq!(sliced.pairs.len(), 2);
        assert!(measured(&[(1.0, 0.0)]).is_err());
        assert!(measured(&[(0.0, 1.0)]).is_err());
    }
}
