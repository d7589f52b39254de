//! A process that touches memory in a known way.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_core::{AddrRange, PAGE_SIZE};

use crate::cpus;
use crate::program::{Helper, asked};

const MIB: u64 = 1 << 20;
/// Maximum number of threads of a load.
const MAX_THREADS: usize = 64;
/// The argument with which a bench starts itself as the load.
pub const ARGUMENT: &str = "--be-the-load";
const STREAMS: &str = "streams";
const STEADY: &str = "steady";
/// Amount of the remaining memory that is touched after each pass over the hot memory.
const STREAMED: usize = 8;

/// The parameters of a load.
#[derive(Debug, Clone, Default)]
pub struct LoadParameters {
    /// bytes of its memory, a multiple of 1 MiB
    pub total: u64,
    /// bytes touched continuously [a sixteenth]
    pub hot: Option<u64>,
    /// bytes touched once a second [an eighth]
    pub warm: Option<u64>,
    /// Between its passes over the hot memory, the thread touches all other memory, part by part. No memory is
    /// warm then, and there is one thread.
    pub streams: bool,
    /// CPUs with one thread each; empty: one thread on any CPU.
    pub cpus: Vec<usize>,
    /// runs under `SCHED_FIFO`, so that no other process runs on its CPUs
    pub fifo: bool,
}

impl LoadParameters {
    /// A load of one thread, anywhere.
    pub fn of(total: u64) -> Self {
        LoadParameters { total, ..LoadParameters::default() }
    }

    /// The memory that is touched continuously, as offsets. It starts at an odd page, so that no result is
    /// right only because of alignment.
    pub fn hot(&self) -> AddrRange {
        let start = self.total / MIB * 250 / 1024 * MIB + 3 * PAGE_SIZE;
        AddrRange::new(start, start + self.hot.unwrap_or(self.total / 16))
    }

    /// The memory that is touched once per second.
    pub fn warm(&self) -> AddrRange {
        let start = self.total / MIB * 600 / 1024 * MIB + PAGE_SIZE;
        AddrRange::new(start, start + self.warm.unwrap_or(self.total / 8))
    }

    fn threads(&self) -> usize {
        self.cpus.len().max(1)
    }

    fn arguments(&self) -> Vec<String> {
        let sizes = [self.total, self.hot().len(), self.warm().len()];
        let cpus = self.cpus.iter().map(ToString::to_string);
        let words = sizes.iter().map(ToString::to_string).chain(cpus);
        let kind = if self.streams { STREAMS } else { STEADY };
        [ARGUMENT.to_owned(), kind.to_owned()].into_iter().chain(words).collect()
    }

    /// The arguments of [`LoadParameters::arguments`] without the scheduling, which is inherited.
    fn from_arguments(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let streams = words.next().context("no kind")? == STREAMS;
        let mut size = || -> Result<u64> { Ok(words.next().context("no size")?.parse()?) };
        let (total, hot, warm) = (size()?, Some(size()?), Some(size()?));
        let cpus = words.map(|w| w.parse()).collect::<Result<_, _>>()?;
        Ok(LoadParameters { total, hot, warm, streams, cpus, fifo: false })
    }
}

/// Pages touched by a thread so far, on a cache line of its own.
#[repr(align(64))]
struct Touched(AtomicU64);

static TOUCHED: [Touched; MAX_THREADS] = [const { Touched(AtomicU64::new(0)) }; MAX_THREADS];

/// Runs the load that the command line asks for until it is killed. First prints the addresses of its memory
/// and its counters. Without such a request, does nothing.
pub fn run_if_asked() -> Result<()> {
    asked(ARGUMENT)?.map_or(Ok(()), |words| run(&LoadParameters::from_arguments(words)?))
}

fn run(shape: &LoadParameters) -> Result<()> {
    cpus::pin(&shape.cpus)?;
    let len = usize::try_from(shape.total)?;
    let mut memory = vec![0u8; len + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let memory = &mut memory[start..start + len];
    touch(memory, &AtomicU64::new(0));
    println!("{:x} {:x}", memory.as_ptr() as usize, TOUCHED.as_ptr() as usize);
    std::io::stdout().flush()?;
    if shape.streams {
        let (hot, rest) = memory.split_at_mut(usize::try_from(shape.hot().len())?);
        stream(hot, rest, &TOUCHED[0].0);
    }
    let [hot, warm] = memory.get_disjoint_mut([offsets(shape.hot()), offsets(shape.warm())])?;
    let threads = shape.threads();
    let parts = hot.chunks_mut(hot.len().div_ceil(threads));
    let parts = parts.zip(warm.chunks_mut(warm.len().div_ceil(threads))).zip(&TOUCHED);
    std::thread::scope(|scope| {
        for (i, ((hot, warm), touched)) in parts.enumerate() {
            let cpu: Vec<usize> = shape.cpus.get(i).copied().into_iter().collect();
            scope.spawn(move || cpus::pin(&cpu).map(|()| work(hot, warm, &touched.0)));
        }
    });
    anyhow::bail!("the load has ended by itself")
}

fn offsets(range: AddrRange) -> std::ops::Range<usize> {
    range.start as usize..range.end as usize
}

fn work(hot: &mut [u8], warm: &mut [u8], touched: &AtomicU64) -> ! {
    let mut next_warm = Instant::now();
    loop {
        touch(hot, touched);
        if Instant::now() >= next_warm {
            touch(warm, touched);
            next_warm += Duration::from_secs(1);
        }
    }
}

fn stream(hot: &mut [u8], rest: &mut [u8], touched: &AtomicU64) -> ! {
    let part = (hot.len() / STREAMED).max(4096);
    loop {
        for part in rest.chunks_mut(part) {
            touch(hot, touched);
            touch(part, touched);
        }
    }
}

fn touch(memory: &mut [u8], touched: &AtomicU64) {
    for part in memory.chunks_mut(64 * 4096) {
        let pages = part.len().div_ceil(4096);
        for byte in part.iter_mut().step_by(4096) {
            *byte = std::hint::black_box(byte.wrapping_add(1));
        }
        touched.fetch_add(pages as u64, Relaxed);
    }
}

/// The load as a child process, killed when dropped.
#[derive(Debug)]
pub struct LoadProcess {
    process: Helper,
    memory: File,
    base: u64,
    counters: u64,
    shape: LoadParameters,
}

impl LoadProcess {
    /// Starts this program again as the load, and waits until its memory is allocated.
    pub fn start(shape: LoadParameters) -> Result<Self> {
        ensure!(shape.threads() <= MAX_THREADS, "a load has at most {MAX_THREADS} threads");
        let me = std::env::current_exe()?;
        let mut command = if shape.fifo { Command::new("chrt") } else { Command::new(&me) };
        if shape.fifo {
            command.args(["--fifo", "1"]).arg(&me);
        }
        let mut process = Helper::start(command.args(shape.arguments()))?;
        let line = process.line()?;
        let (base, counters) = line.split_once(' ').context("the load printed no address")?;
        let (base, counters) = (u64::from_str_radix(base, 16)?, u64::from_str_radix(counters, 16)?);
        let memory = File::open(format!("/proc/{}/mem", process.pid()))?;
        Ok(LoadProcess { process, memory, base, counters, shape })
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Whether it runs under `SCHED_FIFO`.
    pub fn is_fifo(&self) -> bool {
        self.shape.fifo
    }

    /// All its memory, as addresses.
    pub fn all(&self) -> AddrRange {
        self.at(AddrRange::new(0, self.shape.total))
    }

    /// The addresses of the memory that it touches continuously.
    pub fn hot(&self) -> AddrRange {
        self.at(self.shape.hot())
    }

    fn at(&self, part: AddrRange) -> AddrRange {
        AddrRange::new(self.base + part.start, self.base + part.end)
    }

    /// Number of pages that it has touched so far. Reading it does not disturb the load.
    pub fn touched(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in 0..self.shape.threads() {
            let at = self.counters + (thread * size_of::<Touched>()) as u64;
            let mut count = [0; 8];
            self.memory.read_exact_at(&mut count, at).context("the load has ended")?;
            sum += u64::from_ne_bytes(count);
        }
        Ok(sum)
    }
}
