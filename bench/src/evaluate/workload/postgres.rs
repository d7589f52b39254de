//! PostgreSQL with pgbench: few rows of many are read.

use std::fs::{File, read_to_string, write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{Begin, Done, Length, Running, Workload};
use crate::evaluate::figures::Work;
use crate::evaluate::latency::{Latencies, Latency};
use crate::evaluate::process::{Process, Seat, command, run};
use crate::evaluate::stop::Stop;

/// Who is not root.
const NOBODY: u32 = 65534;
/// Bytes of a unit of pgbench's scale, with its index, about.
const UNIT: u64 = 15 << 20;
/// Rows of a unit.
const ROWS: u64 = 100_000;
/// One row of so many is read.
const HOT: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(300);

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Postgres {
    /// of which three fifths are tables, and a quarter shared buffers
    pub bytes: u64,
    /// where random numbers begin
    pub seed: u64,
}

impl Postgres {
    fn scale(&self) -> u64 {
        (self.bytes * 3 / 5 / UNIT).max(1)
    }
}

impl Workload for Postgres {
    fn name(&self) -> &str {
        "postgres"
    }

    fn memory(&self) -> u64 {
        self.bytes
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        let bin = programs().context("PostgreSQL is not installed")?;
        let dir = place.join("postgres");
        std::fs::create_dir(&dir)?;
        std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY))?;
        // The way to it is open to all, what is in it is not.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(place, open)?;
        let mut init = as_nobody(&bin.join("initdb"))?;
        init.args(["--no-sync", "-A", "trust", "-U", "test", "-D"]).arg(dir.join("data"));
        run("initdb", &mut init, stop, PATIENCE)?;
        let server = serve(&bin, &dir, self.bytes / 4)?;
        let mut database = Database { server, bin, dir, seed: self.seed };
        database.fill(self.scale(), stop)?;
        Ok(Box::new(database))
    }
}

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions.map(|v| v.path().join("bin")).find(|bin| bin.join("initdb").exists())
}

fn as_nobody(program: &Path) -> Result<Command> {
    let mut command = command(Seat::Workload, "setpriv")?;
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--pdeathsig", "KILL"]);
    command.arg(program).current_dir("/");
    Ok(command)
}

fn serve(bin: &Path, dir: &Path, buffers: u64) -> Result<Process> {
    let mut command = as_nobody(&bin.join("postgres"))?;
    command.arg("-D").arg(dir.join("data"));
    let socket = format!("unix_socket_directories={}", dir.display());
    let buffers = format!("shared_buffers={}MB", (buffers >> 20).max(16));
    for setting in
        [&socket, &buffers, "listen_addresses=", "fsync=off", "autovacuum=off", "jit=off"]
    {
        command.args(["-c", setting]);
    }
    command.stdout(Stdio::null()).stderr(File::create(dir.join("log"))?);
    // So it takes its backends along.
    Process::start("postgres", &mut command, Signal::QUIT)
}

struct Database {
    server: Process,
    bin: PathBuf,
    dir: PathBuf,
    seed: u64,
}

impl Database {
    fn client(&self, program: &str) -> Result<Command> {
        let mut command = command(Seat::Beside, self.bin.join(program))?;
        command.args(["-U", "test", "-h"]).arg(&self.dir).current_dir(&self.dir);
        Ok(command)
    }

    /// Rows are made, and read into the shared buffers.
    fn fill(&mut self, scale: u64, stop: &Stop) -> Result<()> {
        let socket = self.dir.join(".s.PGSQL.5432");
        self.server.until(stop, PATIENCE, || socket.exists())?;
        let mut init = self.client("pgbench")?;
        init.args(["-i", "-q", "--unlogged-tables", "-s", &scale.to_string(), "postgres"]);
        run("pgbench -i", &mut init, stop, PATIENCE)?;
        let mut read = self.client("psql")?;
        let prewarm = "create extension pg_prewarm; select pg_prewarm('pgbench_accounts');";
        run("psql", read.args(["-X", "-q", "-d", "postgres", "-c", prewarm]), stop, PATIENCE)?;
        let hot = scale * ROWS / HOT;
        let script = format!(
            "\\set aid random(1, {hot})\nselect abalance from pgbench_accounts where aid = :aid;\n"
        );
        Ok(write(self.dir.join("script"), script)?)
    }

    fn bench(&self, length: Duration, stop: &Stop) -> Result<(f64, Option<Latency>)> {
        let mut bench = self.client("pgbench")?;
        let (seconds, seed) = (length.as_secs().max(1), self.seed);
        bench.args(["-n", "-c", "1", "-M", "prepared", "-f", "script", "-l", "--log-prefix=times"]);
        bench.args([&format!("-T{seconds}"), &format!("--random-seed={seed}"), "postgres"]);
        let told = self.dir.join("told");
        bench.stdout(File::create(&told)?).stderr(Stdio::null());
        let mut bench = Process::start("pgbench", &mut bench, Signal::TERM)?;
        bench.wait(stop, length + PATIENCE)?;
        let log = self.dir.join(format!("times.{}", bench.pid()));
        let latency = latency(&read_to_string(&log)?)?;
        std::fs::remove_file(log)?;
        let rate = rate(&read_to_string(&told)?).context("pgbench has told no rate")?;
        Ok((rate, latency))
    }
}

impl Running for Database {
    fn pid(&self) -> i32 {
        self.server.pid()
    }

    fn family(&self) -> bool {
        true
    }

    fn work(&mut self, length: Length, begin: Begin<'_>, stop: &Stop) -> Result<Done> {
        self.bench(length.lead_in, stop)?;
        begin()?;
        let (rate, latency) = self.bench(length.measured, stop)?;
        self.server.check()?;
        Ok(Done { work: Work::PerSecond(rate), latency })
    }
}

fn rate(told: &str) -> Option<f64> {
    let line = told.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Of the log of transactions: the third number of each line, in microseconds.
fn latency(log: &str) -> Result<Option<Latency>> {
    let mut all = Latencies::new()?;
    let time = |line: &str| line.split(' ').nth(2)?.parse().ok();
    log.lines().filter_map(time).for_each(|us| all.add(Duration::from_micros(us)));
    Ok(all.told())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_tells() {
        let told = "number of clients: 1\ntps = 21943.552810 (without initial connection time)\n";
        assert_eq!(rate(told), Some(21_943.552_81));
        assert_eq!(rate("no"), None);
        let log = "0 1 40 0 1700000000 5\n0 2 60 0 1700000000 9\n";
        let told = latency(log).unwrap().unwrap();
        assert!((told.p50 - 40.0).abs() < 1.0 && (told.p99 - 60.0).abs() < 1.0, "{told:?}");
    }
}
