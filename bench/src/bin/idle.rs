//! Own CPU and wakeups of a recorder with default options where little happens.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use isotherm_bench::program::{self, ChildGuard, Helper, asked};
use isotherm_core::PAGE_SIZE;
use isotherm_linux::sys::{Arena, process_cpu};
use rustix::process::geteuid;

#[derive(Parser)]
struct Options {
    /// print one row for a target of this many MiB, instead of the rows with bounds
    #[arg(long)]
    size: Option<u64>,
    /// part of it that is touched 100 times a second, in MiB
    #[arg(long, default_value_t = 0)]
    hot: u64,
    /// number of targets
    #[arg(long, default_value_t = 1)]
    processes: u32,
    /// threads of each target
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// seconds that do not count
    #[arg(long, default_value_t = 10)]
    lead_in: u64,
    /// seconds that are measured
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// The argument with which this program starts itself as a target.
const ARGUMENT: &str = "--be-a-target";
/// A target touches its hot memory this often.
const TOUCHED_EVERY: Duration = Duration::from_millis(10);
const MIB: u64 = 1 << 20;

/// The targets of a row, and its bounds.
#[derive(Clone, Copy)]
struct Row {
    processes: u32,
    mib: u64,
    hot_mib: u64,
    threads: u32,
    /// maximum own CPU in percent of a CPU
    most_cpu: Option<f64>,
    /// maximum number of wakeups per second
    most_wakeups: Option<f64>,
}

const ROWS: [Row; 4] = [
    row(1, 8, 0, 0.10, Some(8.0)),
    row(1, 200, 0, 0.15, Some(8.0)),
    row(1, 1024, 256, 0.30, None),
    row(100, 4, 0, 0.60, None),
];

const fn row(
    processes: u32,
    mib: u64,
    hot_mib: u64,
    most_cpu: f64,
    most_wakeups: Option<f64>,
) -> Row {
    Row { processes, mib, hot_mib, threads: 1, most_cpu: Some(most_cpu), most_wakeups }
}

fn main() -> Result<ExitCode> {
    if let Some(words) = asked(ARGUMENT)? {
        let numbers = words.map(|n| n.parse()).collect::<Result<Vec<u64>, _>>()?;
        let [mib, hot, threads] = numbers[..] else { bail!("a target has three numbers") };
        return be_a_target(mib, hot, threads);
    }
    let o = Options::parse();
    ensure!(geteuid().is_root(), "observing processes requires root");
    ensure!(o.seconds > 0, "0 s: choose 1 or more");
    ensure!((1..=1000).contains(&o.processes), "{} processes: choose 1 to 1000", o.processes);
    ensure!((1..=1000).contains(&o.threads), "{} threads: choose 1 to 1000", o.threads);
    let rows = match o.size {
        None => ROWS.to_vec(),
        Some(mib) => {
            let all = u64::from(o.processes).saturating_mul(mib);
            ensure!(mib > 0 && all <= 1 << 15, "{all} MiB in all: choose 1 to 32768");
            ensure!(o.hot <= mib, "{} MiB hot of {mib}", o.hot);
            let Options { processes, threads, hot: hot_mib, .. } = o;
            vec![Row { processes, mib, hot_mib, threads, most_cpu: None, most_wakeups: None }]
        }
    };
    println!(
        "| processes | MiB each | hot MiB | threads | own CPU, % | at most | wakeups a second | at most |\n\
         |---|---|---|---|---|---|---|---|"
    );
    let mut all_hold = true;
    for row in rows {
        let (cpu, wakeups) = measure(&row, &o)?;
        let bound = |most: Option<f64>| most.map_or_else(String::new, |most| format!("{most}"));
        println!(
            "| {} | {} | {} | {} | {cpu:.3} | {} | {wakeups:.1} | {} |",
            row.processes,
            row.mib,
            row.hot_mib,
            row.threads,
            bound(row.most_cpu),
            bound(row.most_wakeups),
        );
        let holds = |is: f64, most: Option<f64>| most.is_none_or(|most| is <= most);
        all_hold &= holds(cpu, row.most_cpu) && holds(wakeups, row.most_wakeups);
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Own CPU in percent of a CPU, and wakeups per second.
fn measure(row: &Row, o: &Options) -> Result<(f64, f64)> {
    let targets = (0..row.processes).map(|_| start(row)).collect::<Result<Vec<ChildGuard>>>()?;
    let dir = tempfile::tempdir()?;
    let mut recorder = Command::new(program::beside()?);
    recorder.arg("record").arg("-o").arg(dir.path().join("a.rec"));
    for target in &targets {
        recorder.arg("--pid").arg(target.0.id().to_string());
    }
    let recorder = recorder.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let recorder = ChildGuard(recorder);
    std::thread::sleep(Duration::from_secs(o.lead_in));
    let pid = recorder.pid();
    let used = || -> Result<_> { Ok((process_cpu(pid).context("it has ended")?, wakeups(pid)?)) };
    let (begin, before) = (Instant::now(), used()?);
    std::thread::sleep(Duration::from_secs(o.seconds));
    let (time, after) = (begin.elapsed().as_secs_f64(), used()?);
    let cpu = after.0.saturating_sub(before.0).as_secs_f64();
    Ok((cpu / time * 100.0, (after.1 - before.1) as f64 / time))
}

/// The number of times that the process has gone to sleep.
fn wakeups(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.context("the kernel does not report wakeups")?.trim().parse()?)
}

/// Starts a target, and waits until its memory exists.
fn start(row: &Row) -> Result<ChildGuard> {
    let sizes = [row.mib, row.hot_mib, row.threads.into()].map(|n| n.to_string());
    Helper::again(ARGUMENT, sizes)?.ready()
}

fn be_a_target(mib: u64, hot_mib: u64, threads: u64) -> Result<ExitCode> {
    let memory = Arena::map(mib * MIB)?;
    (0..mib * MIB / PAGE_SIZE).for_each(|page| memory.write(page));
    for _ in 1..threads {
        std::thread::spawn(|| std::thread::sleep(Duration::MAX));
    }
    println!("ready");
    std::io::stdout().flush()?;
    if hot_mib == 0 {
        std::thread::sleep(Duration::MAX);
    }
    loop {
        let begin = Instant::now();
        (0..hot_mib * MIB / PAGE_SIZE).for_each(|page| memory.write(page));
        std::thread::sleep(TOUCHED_EVERY.saturating_sub(begin.elapsed()));
    }
}
