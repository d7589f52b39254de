//! The cost of the rows that `isotherm agent` writes, beyond that of watching.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_bench::many;
use isotherm_bench::program;
use rustix::process::geteuid;

/// Maximum share of a CPU for the rows, in percent, and maximum size of the rows of a day.
const MAX_CPU: f64 = 0.1;
const MAX_MIB: f64 = 20.0;
const MINUTES_OF_DAY: f64 = 1440.0;

#[derive(Parser)]
struct Options {
    /// number of control groups, with a process each
    #[arg(long, default_value_t = 50)]
    groups: u32,
    /// memory of each process in MiB, of which 256 KiB are touched, one page every 200 ms
    #[arg(long, default_value_t = 32)]
    size: u64,
    /// duration of the measurement in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// also upload the rows, to a server on loopback that keeps nothing
    #[arg(long)]
    upload: bool,
}

fn main() -> Result<()> {
    many::run_if_asked()?;
    let o = Options::parse();
    ensure!(geteuid().is_root(), "control groups and observing processes require root");
    ensure!((1..=500).contains(&o.groups), "{} groups: choose 1 to 500", o.groups);
    ensure!(o.seconds >= 180, "there is a row a minute: choose at least 180 s");
    let parent = Group::create(mount().join(format!("isotherm-bench-{}", std::process::id())))?;
    // Dropped in this order: a group is removed when its process has ended.
    let mut groups = Vec::new();
    let mut processes = Vec::new();
    for n in 0..o.groups {
        let group = Group::create(parent.0.join(format!("group{n}")))?;
        let process = many::start(o.size << 20)?;
        fs::write(group.0.join("cgroup.procs"), process.0.id().to_string())?;
        groups.push(group);
        processes.push(process);
    }
    let lake = tempfile::tempdir()?;
    let mut agent = Command::new(program::beside()?);
    agent.args(["agent", "--control", "none"]);
    let server = if o.upload { Some(Server::start()?) } else { None };
    match &server {
        Some(server) => {
            agent.args(["--lake", "s3://lake/bench", "--spool"]).arg(lake.path());
            agent.env("AWS_ENDPOINT", format!("http://127.0.0.1:{}", server.port));
            let keys = ["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"];
            agent.envs(keys.map(|key| (format!("AWS_{key}"), "a"))).env("AWS_ALLOW_HTTP", "true");
        }
        None => drop(agent.arg("--lake").arg(lake.path())),
    }
    agent.args(["--duration", &format!("{}s", o.seconds)]).arg("--cgroup").arg(&parent.0);
    let out = agent.stderr(Stdio::piped()).output().context("cannot start isotherm")?;
    let text = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "isotherm agent has failed: {text}");
    let last = text.lines().last().unwrap_or_default();
    let number = |before: &str, after: &str| -> Result<f64> {
        let part = last.split_once(after).map(|(part, _)| part);
        let part = part.and_then(|part| part.rsplit_once(before)).map(|(_, number)| number);
        part.and_then(|n| n.parse().ok()).with_context(|| format!("no cost in {last:?}"))
    };
    let seconds = number("ran ", " s: ")?;
    let rows_cpu = number("; ", " s of CPU time for rows")? / seconds * 100.0;
    let all_cpu = number("own cost ", " % of a CPU")?;
    let (minutes, bytes) = rows(lake.path(), o.groups)?;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let a_minute = bytes as f64 / minutes as f64;
    let stored = mib(a_minute * MINUTES_OF_DAY);
    // The file of the running hour is written each minute, then once more: 1 + 2 + ... + 60, and 60 minutes.
    let written = mib(a_minute * 24.0 * (60.0 * 61.0 / 2.0 + 60.0));
    // With object storage, the running hour each 5 minutes, half of it on average, and once more when it has ended.
    let sent = mib(a_minute * 24.0 * (12.0 * 30.0 + 60.0));
    println!(
        "| groups | minutes | rows, % of a CPU | all, % of a CPU | stored, MiB a day | written, MiB a day | sent, MiB a day |\n\
         |---|---|---|---|---|---|---|\n\
         | {} | {minutes} | {rows_cpu:.3} | {all_cpu:.1} | {stored:.1} | {written:.0} | {sent:.0} |",
        o.groups
    );
    if let Some(server) = server {
        let [puts, bytes] = [&server.puts, &server.bytes].map(|n| n.load(Ordering::Relaxed));
        ensure!(puts > 0, "the agent has uploaded nothing");
        println!("{puts} uploads in this run, {:.2} MiB", mib(bytes as f64));
    }
    ensure!(rows_cpu <= MAX_CPU, "rows need {rows_cpu:.3} % of a CPU, more than {MAX_CPU} %");
    ensure!(stored <= MAX_MIB, "rows need {stored:.1} MiB a day, more than {MAX_MIB} MiB");
    Ok(())
}

/// A server of object storage that counts what it receives, and has no object.
struct Server {
    port: u16,
    puts: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Server {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (puts, bytes) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let server = Server { port, puts: Arc::clone(&puts), bytes: Arc::clone(&bytes) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (puts, bytes) = (Arc::clone(&puts), Arc::clone(&bytes));
                thread::spawn(move || answer(stream, &puts, &bytes));
            }
        });
        Ok(server)
    }
}

/// Answers the requests of one connection.
fn answer(mut stream: TcpStream, puts: &AtomicU64, bytes: &AtomicU64) -> std::io::Result<()> {
    let mut requests = BufReader::new(stream.try_clone()?);
    loop {
        let (mut is_put, mut length, mut lines) = (false, 0, 0);
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            is_put |= lines == 0 && line.starts_with("PUT ");
            lines += 1;
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        std::io::copy(&mut requests.by_ref().take(length), &mut std::io::sink())?;
        puts.fetch_add(u64::from(is_put), Ordering::Relaxed);
        bytes.fetch_add(length, Ordering::Relaxed);
        let status = if is_put { "200 OK\r\nETag: \"a\"" } else { "404 Not Found" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
    }
}

/// The number of minutes in the lake, and the size of its files.
fn rows(lake: &Path, groups: u32) -> Result<(usize, u64)> {
    let (mut rows, mut bytes) = (0, 0);
    let pattern = |dir: &Path| -> Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    };
    for date in pattern(lake)?.into_iter().filter(|path| path.is_dir()) {
        for hour in pattern(&date)? {
            for host in pattern(&hour)? {
                let path = host.join("rows.parquet");
                rows += isotherm_fleet::read(&path)?.rows.len();
                bytes += path.metadata()?.len();
            }
        }
    }
    let minutes = rows / usize::try_from(groups)?;
    ensure!(minutes > 0, "the agent has written no row");
    Ok((minutes, bytes))
}

/// Where memory groups are.
fn mount() -> PathBuf {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() { root.to_owned() } else { root.join("memory") }
}

/// A control group that is removed when this is dropped.
struct Group(PathBuf);

impl Group {
    fn create(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Group(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
