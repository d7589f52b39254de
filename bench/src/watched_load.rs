//! A load that is watched in several ways alternately.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use isotherm_core::{Cost, Monitor, Quality, watch};
use isotherm_linux::{Processes, Way, sys};

use crate::load::{LoadParameters, LoadProcess};
use crate::setups::MonitorSetup;
use crate::slices::{OFF, Slice};
use crate::watch_for::watch_for;
use crate::{cpus, interrupts, smaps, usage};

/// Time after a change of the way that does not count.
const LEAD_IN: Duration = Duration::from_secs(1);
/// Interval in which `clear_refs` with `smaps` clears and reads a whole process: that of the region sampler's
/// snapshots.
const PASS: Duration = Duration::from_millis(400);
/// A monitor has settled 5 s after it has covered this share, in basis points, or after a time limit.
const SEEN_BP: u32 = 9_500;
const SETTLED: Duration = Duration::from_secs(5);
const MAX_SETTLING: Duration = Duration::from_secs(120);

/// A load, and the monitors that watch it.
pub struct WatchedLoad {
    load: LoadProcess,
    cpus: Vec<usize>,
    /// by number of the way, from 1 on; `None` for `clear_refs` with `smaps`
    watchers: Vec<Option<Watcher>>,
}

/// A monitor in a thread of its own: its cost is the CPU time of the thread.
struct Watcher {
    ask: Sender<Duration>,
    told: Receiver<Result<MonitorResult>>,
    quality: Option<Quality>,
}

/// The results of a monitor.
struct MonitorResult {
    cost: Cost,
    quality: Option<Quality>,
}

impl WatchedLoad {
    /// Starts a load with one thread on each of the last `threads` of `allowed`. If that leaves a CPU for the
    /// monitors, the load has its CPUs to itself under `SCHED_FIFO`, and this thread uses the others; else
    /// all share the CPUs. The monitors of `setups` then run one after the other until they have settled.
    pub fn start(
        shape: LoadParameters,
        threads: usize,
        allowed: &[usize],
        setups: &[MonitorSetup],
        seed: u64,
    ) -> Result<Self> {
        let (ours, theirs) = allowed.split_at(allowed.len().saturating_sub(threads));
        cpus::pin(if ours.is_empty() { allowed } else { ours })?;
        let cpus: Vec<usize> = theirs.iter().copied().cycle().take(threads).collect();
        let load = LoadProcess::start(LoadParameters {
            cpus: cpus.clone(),
            fifo: !ours.is_empty(),
            ..shape
        })?;
        WatchedLoad::of(load, cpus, setups, seed)
    }

    /// Watches a load that runs on these CPUs. The monitors of `setups` run one after the other until they
    /// have settled.
    pub fn of(
        load: LoadProcess,
        cpus: Vec<usize>,
        setups: &[MonitorSetup],
        seed: u64,
    ) -> Result<Self> {
        let mut watchers = Vec::new();
        for setup in setups {
            let mut watcher = Watcher::start(setup, load.pid(), seed);
            if let Some(watcher) = &mut watcher {
                watcher.settle(load.all().len(), setup.attrs.sample)?;
            }
            watchers.push(watcher);
        }
        Ok(WatchedLoad { load, cpus, watchers })
    }

    /// Whether the load has its CPUs to itself.
    pub fn is_alone(&self) -> bool {
        self.load.is_fifo()
    }

    /// The share of the memory that the monitor of a way covered last, from 0 to 1, if it reports that.
    pub fn coverage(&self, way: usize) -> Option<f64> {
        let watcher = self.watchers.get(way.checked_sub(1)?)?.as_ref()?;
        watcher.quality.map(|q| f64::from(q.coverage_bp) / 1e4)
    }

    /// Watches for `length`, after a lead-in.
    pub fn slice(&mut self, way: usize, length: Duration) -> Result<Slice> {
        self.watch(way, LEAD_IN)?;
        let before = self.counts()?;
        let cost = self.watch(way, length)?;
        let after = self.counts()?;
        Ok(Slice {
            way,
            seconds: (after.at - before.at).as_secs_f64(),
            touched: after.touched - before.touched,
            cpu_seconds: (after.cpu - before.cpu).as_secs_f64(),
            lost_seconds: cost.lost.as_secs_f64(),
            clears: cost.clears,
            shootdowns: after.shootdowns - before.shootdowns,
            target_cpu_seconds: (after.target.cpu - before.target.cpu).as_secs_f64(),
            major_faults: after.target.major_faults - before.target.major_faults,
        })
    }

    fn watch(&mut self, way: usize, length: Duration) -> Result<Cost> {
        if way == OFF {
            std::thread::sleep(length);
            return Ok(Cost::default());
        }
        match self.watchers.get_mut(way - 1) {
            Some(Some(watcher)) => watcher.run(length),
            Some(None) => self.clear_and_read(length).map(|()| Cost::default()),
            None => bail!("there is no way {way} to watch"),
        }
    }

    fn counts(&self) -> Result<Counts> {
        Ok(Counts {
            shootdowns: interrupts::tlb_shootdowns(&self.cpus)?,
            cpu: sys::own_cpu(),
            touched: self.load.touched()?,
            target: usage::of(self.load.pid())?,
            at: Instant::now(),
        })
    }

    /// Clears the bits. At the end of each interval reads and clears them again.
    fn clear_and_read(&mut self, length: Duration) -> Result<()> {
        let begin = Instant::now();
        let mut end = begin;
        while end < begin + length {
            end += PASS;
            smaps::clear(self.load.pid())?;
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            std::hint::black_box(smaps::referenced(self.load.pid())?);
        }
        Ok(())
    }
}

impl Watcher {
    fn start(setup: &MonitorSetup, pid: i32, seed: u64) -> Option<Self> {
        if setup.look == Way::Smaps {
            return None;
        }
        let (ask, asked) = channel();
        let (tell, told) = channel();
        let setup = setup.clone();
        std::thread::spawn(move || {
            let mut monitor = monitor_of(&setup, pid, seed);
            for length in asked {
                let done = match &mut monitor {
                    Ok(monitor) => run(&mut **monitor, length),
                    Err(e) => Err(anyhow!("{e:#}")),
                };
                if tell.send(done).is_err() {
                    return;
                }
            }
        });
        Some(Watcher { ask, told, quality: None })
    }

    /// Runs the monitor. Returns the cost of its snapshots.
    fn run(&mut self, length: Duration) -> Result<Cost> {
        self.ask.send(length).context("the monitor has ended")?;
        let reported = self.told.recv().context("the monitor has ended")??;
        self.quality = reported.quality.or(self.quality);
        Ok(reported.cost)
    }

    /// Runs until it has swept `total` bytes: the region sampler sweeps 16 MiB in a sampling interval.
    fn settle(&mut self, total: u64, sample: Duration) -> Result<()> {
        let begin = Instant::now();
        let sweeps = u32::try_from(total.div_ceil(16 << 20)).unwrap_or(u32::MAX);
        let swept = sample.saturating_mul(sweeps);
        loop {
            self.run(Duration::from_secs(1))?;
            let ran = begin.elapsed();
            let seen = self.quality.map_or(ran >= swept, |q| q.coverage_bp >= SEEN_BP);
            if seen || ran >= MAX_SETTLING {
                break;
            }
        }
        self.run(SETTLED).map(|_| ())
    }
}

type AnyMonitor = dyn Monitor<Ops = Box<dyn Processes>>;

fn monitor_of(setup: &MonitorSetup, pid: i32, seed: u64) -> Result<Box<AnyMonitor>> {
    let mut ops = setup.look.open()?;
    let target = ops.attach(pid)?;
    Ok(watch(ops, setup.attrs, &[target], seed)?)
}

fn run(monitor: &mut AnyMonitor, length: Duration) -> Result<MonitorResult> {
    let mut reported = MonitorResult { cost: Cost::default(), quality: None };
    watch_for(monitor, length, |s| {
        reported.cost += s.cost;
        reported.quality = s.quality;
    })?;
    Ok(reported)
}

struct Counts {
    shootdowns: u64,
    cpu: Duration,
    touched: u64,
    target: usage::Used,
    at: Instant,
}
