//! Latency under memory pressure: a redis-server and a process that allocates in bursts share a control group
//! whose limit suffices for only one of them. `isotherm reclaim` may free memory in time.

use std::ffi::OsString;
use std::fs::{File, create_dir, read_to_string, write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::swap::Swap;
use isotherm_linux::sys::Arena;
use rustix::process::Signal;

use super::latency::{Latencies, Latency};
use super::machine::KernelCounters;
use super::process::{ChildProcess, ProcessCpus, command};
use super::statistics::mean;
use super::stop::Stop;
use super::table::{TextTable, number};
use super::watching::Watching;
use super::workload::{Redis, Running, Server};
use isotherm_bench::limited::Limited;

/// The argument with which the bench starts itself as the allocating process.
const ARGUMENT: &str = "--be-the-burst";
/// Number of bursts per run.
const BURSTS: u32 = 6;
/// Pause between bursts, so that newly written values are cold by the next burst.
const BETWEEN: Duration = Duration::from_secs(12);
/// Latencies count from 1 s before a burst until this long after its start.
const COUNTED_AFTER: Duration = Duration::from_secs(4);
const COUNTED_BEFORE: Duration = Duration::from_secs(1);
/// Reclaims memory that is idle for 5 s, for at most 1/5 of the time.
const RECLAIM: [&str; 11] = [
    "reclaim",
    "--min-age",
    "5s",
    "--quota",
    "200ms/1s",
    "--quota-size",
    "none",
    "--watermarks",
    "none",
    "--control",
    "none",
];

/// The results of a run, over all its bursts.
#[derive(Debug, Clone, Default)]
pub struct BurstResults {
    /// latency of redis during bursts
    latency: Option<Latency>,
    /// time that each burst required to allocate its memory, in ms
    bursts: Vec<f64>,
    /// how often the limit was reached during bursts
    reached: u64,
    /// counters of the machine during bursts
    counts: KernelCounters,
}

/// Runs it `times` times each with and without reclaim, alternately.
pub fn pressure(redis: &Redis, times: u32, stop: &Stop) -> Result<TextTable> {
    let mut rows = Vec::new();
    for i in 0..times {
        for reclaim in if i % 2 == 0 { [false, true] } else { [true, false] } {
            let results = run(redis, reclaim, stop)?;
            eprintln!("reclaim {}, {}: done", if reclaim { "on" } else { "off" }, i + 1);
            rows.push((reclaim, row(reclaim, &results)));
        }
    }
    rows.sort_by_key(|(reclaim, _)| *reclaim);
    let head = [
        "isotherm reclaim",
        "redis p50, us",
        "p99, us",
        "p99.9, us",
        "a burst, ms",
        "the longest, ms",
        "limit reached",
        "allocstall",
        "major faults",
        "waiting for memory, ms",
    ];
    Ok(TextTable {
        title: format!("{BURSTS} bursts of an eighth of redis' memory, while memory is short"),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    })
}

fn row(reclaim: bool, results: &BurstResults) -> Vec<String> {
    let latency = |of: fn(Latency) -> f64| number(results.latency.map(of), 0);
    vec![
        if reclaim { "on" } else { "off" }.to_owned(),
        latency(|l| l.p50),
        latency(|l| l.p99),
        latency(|l| l.p999),
        number(mean(&results.bursts), 0),
        number(results.bursts.iter().copied().reduce(f64::max), 0),
        results.reached.to_string(),
        results.counts.stalls.to_string(),
        results.counts.major_faults.to_string(),
        number(Some(results.counts.pressure as f64 / 1e3), 1),
    ]
}

fn run(redis: &Redis, reclaim: bool, stop: &Stop) -> Result<BurstResults> {
    let _swap = Swap::start(redis.bytes * 3)?;
    let place = tempfile::tempdir()?;
    // The limit suffices for the data and the overhead of redis, without a burst.
    let group = Limited::start(redis.bytes / 16 * 17)?;
    let mut server = group.within(|| Server::start(redis, place.path(), true, stop))?;
    let watching = reclaim.then(|| start(server.pid(), place.path())).transpose()?;
    let mut seen = Latencies::new()?;
    let mut results = BurstResults::default();
    let eighth = redis.count() / 8;
    for burst in 0..BURSTS {
        // Values that are written again are resident again, and then become idle.
        server.set_anew(eighth * (burst % 8), eighth)?;
        server.open_loop(BETWEEN, &mut Latencies::new()?, stop)?;
        let (counts, reached) = (KernelCounters::read(Path::new("/"))?, group.times_reached()?);
        let allocating = std::thread::scope(|scope| {
            let allocating = scope.spawn(|| {
                std::thread::sleep(COUNTED_BEFORE);
                allocate(&group, redis.bytes / 8, place.path(), stop)
            });
            server.open_loop(COUNTED_AFTER, &mut seen, stop)?;
            allocating.join().map_err(|_| anyhow::anyhow!("the burst has panicked"))?
        })?;
        results.bursts.push(allocating);
        let since = KernelCounters::read(Path::new("/"))?.since(counts);
        results.counts = results.counts.and(since);
        results.reached += group.times_reached()?.saturating_sub(reached);
    }
    results.latency = seen.percentiles();
    watching.map_or(Ok(()), Watching::end)?;
    Ok(results)
}

fn start(pid: i32, place: &Path) -> Result<Watching> {
    let dir = place.join("reclaim");
    create_dir(&dir)?;
    Watching::with(&RECLAIM.map(OsString::from), None, pid, &dir)
}

/// Starts a process in the group that allocates memory; returns the time for that, in ms.
fn allocate(group: &Limited, bytes: u64, place: &Path, stop: &Stop) -> Result<f64> {
    let took = place.join("took");
    let mut command = command(ProcessCpus::Beside, std::env::current_exe()?)?;
    command.arg(ARGUMENT).arg(bytes.to_string()).arg(group.dir()).stdout(File::create(&took)?);
    let mut process = ChildProcess::start("the burst", &mut command, Signal::KILL)?;
    process.wait(stop, Duration::from_secs(60))?;
    read_to_string(&took)?.trim().parse().context("the burst did not report how long it took")
}

/// If the command line asks for it, allocates memory, prints the time for that, and keeps the memory for 1 s.
/// Otherwise does nothing.
pub fn run_if_asked() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some(ARGUMENT) {
        return Ok(());
    }
    let bytes: u64 = words.next().context("no size")?.parse()?;
    let group = words.next().context("no group")?;
    write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string())?;
    let begin = Instant::now();
    let memory = Arena::map(bytes)?;
    (0..bytes / PAGE_SIZE).for_each(|page| memory.write(page));
    println!("{}", begin.elapsed().as_secs_f64() * 1e3);
    std::thread::sleep(Duration::from_secs(1));
    std::process::exit(0)
}
