//! The cost of the view of `isotherm top`, beyond that of watching.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use isotherm_bench::many;
use isotherm_bench::program::{self, ChildGuard};
use isotherm_bench::threads::Threads;
use rustix::process::geteuid;

/// Maximum share of a CPU for the view, in percent.
const BOUND: f64 = 0.2;

#[derive(Parser)]
struct Options {
    /// number of processes
    #[arg(long, default_value_t = 20)]
    processes: u32,
    /// memory of each in MiB, of which 256 KiB are touched, one page every 200 ms
    #[arg(long, default_value_t = 64)]
    size: u64,
    /// time before the measurement, in seconds
    #[arg(long, default_value_t = 20)]
    lead_in: u64,
    /// duration of the measurement in seconds
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// the page that is shown
    #[arg(long, default_value = "table")]
    page: Page,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Page {
    Table,
    Groups,
    Process,
}

fn main() -> Result<()> {
    many::run_if_asked()?;
    let o = Options::parse();
    ensure!(geteuid().is_root(), "observing processes requires root");
    ensure!((1..=1000).contains(&o.processes), "{} processes: choose 1 to 1000", o.processes);
    let all = u64::from(o.processes).saturating_mul(o.size);
    ensure!(o.size > 0 && all <= 1 << 15, "{all} MiB in all: choose 1 to 32768");
    let them: Result<Vec<ChildGuard>> =
        (0..o.processes).map(|_| many::start(o.size << 20)).collect();
    let them = them?;
    let pids: String = them.iter().map(|p| format!(" --pid {}", p.0.id())).collect();
    let line = format!("stty cols 120 rows 40; exec {} top{pids}", program::beside()?.display());
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).env("COLORTERM", "truecolor").env("TERM", "xterm");
    script.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut script = ChildGuard(script.spawn().context("cannot start script, of util-linux")?);
    let mut keys = script.0.stdin.take().context("no standard input")?;
    std::thread::sleep(Duration::from_secs(o.lead_in / 2));
    keys.write_all(match o.page {
        Page::Table => b"",
        Page::Groups => b"\t",
        Page::Process => b"\r",
    })?;
    std::thread::sleep(Duration::from_secs(o.lead_in - o.lead_in / 2));
    let top = child_of(script.0.id())?;
    let (start, before) = (Instant::now(), Threads::of(top)?);
    std::thread::sleep(Duration::from_secs(o.seconds));
    let (spent, time) = (before.since()?, start.elapsed());
    let percent = |cpu: Duration| cpu.as_secs_f64() / time.as_secs_f64() * 100.0;
    // The main thread draws.
    let (view, watching) = (percent(spent.main), percent(spent.others));
    println!(
        "| processes | memory, MiB | view, % of a CPU | watching, % of a CPU |\n|---|---|---|---|\n\
         | {} | {all} | {view:.3} | {watching:.2} |",
        o.processes
    );
    keys.write_all(b"q")?;
    script.0.wait()?;
    ensure!(view <= BOUND, "the view needs {view:.3} % of a CPU, more than {BOUND} %");
    Ok(())
}

fn child_of(pid: u32) -> Result<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    children.trim().parse().with_context(|| format!("script has the children {children:?}"))
}
