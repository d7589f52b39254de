//! The cost of watching many processes with `isotherm reclaim --all` over a long time.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::program::{self, ChildGuard};
use isotherm_bench::{many, usage};
use rustix::process::geteuid;

#[derive(Parser)]
struct Options {
    /// number of processes
    #[arg(long, default_value_t = 1000)]
    processes: u32,
    /// memory of each in MiB, of which 256 KiB are touched, one page every 200 ms
    #[arg(long, default_value_t = 4)]
    size: u64,
    /// budget in percent of a CPU
    #[arg(long, default_value = "1")]
    budget: String,
    /// minimum age of `reclaim`; a day if it should act on nothing
    #[arg(long, default_value = "120s")]
    min_age: String,
    /// duration in seconds
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// length of a row in seconds
    #[arg(long, default_value_t = 20)]
    every: u64,
}

fn main() -> Result<()> {
    many::run_if_asked()?;
    let o = Options::parse();
    ensure!(geteuid().is_root(), "observing processes requires root");
    ensure!((1..=10_000).contains(&o.processes), "{} processes: choose 1 to 10000", o.processes);
    let all = u64::from(o.processes).saturating_mul(o.size);
    ensure!(o.size > 0 && all <= 1 << 15, "{all} MiB in all: choose 1 to 32768");
    ensure!(o.every > 0, "a row each 0 s: choose 1 or more");
    let them: Result<Vec<ChildGuard>> =
        (0..o.processes).map(|_| many::start(o.size << 20)).collect();
    let them = them?;
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("control.sock");
    let options = ["reclaim", "--all", "--dry-run", "--watermarks", "none", "--budget"];
    let mut service = Command::new(program::beside()?);
    service.args(options).arg(format!("{}%", o.budget)).arg("--control").arg(&socket);
    service.args(["--min-age", &o.min_age]);
    let said = dir.path().join("said");
    service.stdout(Stdio::null()).stderr(File::create(&said)?);
    let service = ChildGuard(service.spawn()?);
    let pid = service.pid();
    println!(
        "| after, s | own CPU, % | seen, % | processes | regions | own memory, MiB | 20 MiB + 1 KiB a region |\n\
         |---|---|---|---|---|---|---|"
    );
    let (begin, mut before) = (Instant::now(), Duration::ZERO);
    for row in 1..=(o.seconds / o.every).max(1) {
        let at = Duration::from_secs(row * o.every);
        std::thread::sleep(at.saturating_sub(begin.elapsed()));
        let cpu = usage::of(pid)?.cpu;
        let status = status(&socket)?;
        let coverage = status.pointer("/cost/coverage").and_then(serde_json::Value::as_f64);
        let regions = regions(&std::fs::read_to_string(&said)?).unwrap_or(f64::NAN);
        println!(
            "| {} | {:.2} | {:.0} | {} | {regions} | {:.1} | {:.1} |",
            at.as_secs(),
            (cpu - before).as_secs_f64() * 100.0 / o.every as f64,
            coverage.unwrap_or(f64::NAN) * 100.0,
            status["targets"].as_array().map_or(0, Vec::len),
            own_memory(pid)? as f64 / 1024.0,
            20.0 + regions / 1024.0,
        );
        before = cpu;
    }
    drop((service, them));
    Ok(())
}

fn status(socket: &Path) -> Result<serde_json::Value> {
    let mut command = Command::new(program::beside()?);
    let said = command.args(["service", "status", "--json", "--control"]).arg(socket).output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Ok(serde_json::from_slice(&said.stdout)?)
}

/// The number of regions in the last status line.
fn regions(said: &str) -> Option<f64> {
    said.rsplit_once(" regions")?.0.rsplit(' ').next()?.parse().ok()
}

/// Own memory in KiB, without mapped pages of files, which the kernel can drop.
fn own_memory(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok());
    kib.context("the kernel does not report RssAnon")
}
