//! A load that is watched for a while in one way, then in another.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use isotherm_core::{Attrs, RegionSampler, Snapshot, Source, Step};
use isotherm_linux::{Hold, Vaddr, sys};

use crate::load::{Load, Shape};
use crate::slices::{Slice, Way};
use crate::{cpus, interrupts, smaps};

/// A load, and those who watch it.
pub struct Watched {
    load: Load,
    cpus: Vec<usize>,
    monitor: RegionSampler<Vaddr>,
}

impl Watched {
    /// Starts a load of `total` bytes with one thread on each of the last `threads` of `allowed`.
    /// If that leaves a CPU for who watches, the load has its own under `SCHED_FIFO`, and this
    /// thread keeps to the others; else all share. The monitor then runs until it has settled.
    ///
    /// # Errors
    /// If the load cannot be started, or not be watched.
    pub fn start(total: u64, threads: usize, allowed: &[usize], seed: u64) -> Result<Self> {
        let (ours, theirs) = allowed.split_at(allowed.len().saturating_sub(threads));
        cpus::pin(if ours.is_empty() { allowed } else { ours })?;
        let cpus: Vec<usize> = theirs.iter().copied().cycle().take(threads).collect();
        let shape = Shape { total, cpus: cpus.clone(), fifo: !ours.is_empty() };
        let load = Load::start(shape)?;
        let mut ops = Vaddr::new()?;
        let target = ops.attach(load.pid())?;
        let monitor = RegionSampler::new(ops, Attrs::default(), &[target], seed)?;
        let mut watched = Watched { load, cpus, monitor };
        watched.snapshots(settling(total, watched.monitor.attrs()))?;
        Ok(watched)
    }

    /// Whether the load's CPUs are its own.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.load.is_fifo()
    }

    /// Watches for so many aggregation intervals.
    ///
    /// # Errors
    /// If the load has ended.
    pub fn slice(&mut self, way: Way, intervals: u32) -> Result<Slice> {
        let before = self.counts()?;
        let clears = match way {
            Way::Off => {
                std::thread::sleep(self.monitor.attrs().aggr * intervals);
                0
            }
            Way::Isotherm => self.snapshots(intervals)?,
            Way::Straightforward => {
                self.clear_and_read(intervals)?;
                0
            }
        };
        let after = self.counts()?;
        Ok(Slice {
            way,
            seconds: (after.at - before.at).as_secs_f64(),
            touched: after.touched - before.touched,
            cpu_seconds: (after.cpu - before.cpu).as_secs_f64(),
            clears,
            shootdowns: after.shootdowns - before.shootdowns,
        })
    }

    fn counts(&self) -> Result<Counts> {
        Ok(Counts {
            shootdowns: interrupts::tlb_shootdowns(&self.cpus)?,
            cpu: sys::own_cpu(),
            touched: self.load.touched()?,
            at: Instant::now(),
        })
    }

    /// Runs the monitor for `n` snapshots; returns the ranges that it cleared.
    fn snapshots(&mut self, n: u32) -> Result<u64> {
        let mut clears = 0;
        for _ in 0..n {
            clears += self.snapshot()?.cost.clears;
        }
        Ok(clears)
    }

    fn snapshot(&mut self) -> Result<std::sync::Arc<Snapshot>> {
        loop {
            match self.monitor.step(sys::monotonic())? {
                Step::Wait(until) => std::thread::sleep(until.since(sys::monotonic())),
                Step::Snapshot(s) => return Ok(s),
                Step::End(why) => bail!("the load ended: {why:?}"),
            }
        }
    }

    /// Clears, and at the end of each of `n` aggregation intervals reads and clears again.
    fn clear_and_read(&mut self, n: u32) -> Result<()> {
        let begin = Instant::now();
        for i in 1..=n {
            smaps::clear(self.load.pid())?;
            let end = begin + self.monitor.attrs().aggr * i;
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            std::hint::black_box(smaps::referenced(self.load.pid())?);
        }
        Ok(())
    }
}

struct Counts {
    shootdowns: u64,
    cpu: Duration,
    touched: u64,
    at: Instant,
}

/// Aggregation intervals until the monitor has swept `total` bytes, 16 MiB in a sampling interval,
/// and 5 s more.
fn settling(total: u64, attrs: Attrs) -> u32 {
    let sweep = total.div_ceil(16 << 20).div_ceil(attrs.samples().into());
    let rest = Duration::from_secs(5).as_nanos() / attrs.aggr.as_nanos().max(1);
    u32::try_from(u128::from(sweep) + rest).unwrap_or(u32::MAX)
}
