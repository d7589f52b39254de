//! PostgreSQL with pgbench: a few of many rows are read.

use std::fs::{File, Permissions, read_to_string, write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use isotherm_bench::postgres::programs;
use rustix::process::Signal;
use tempfile::TempDir;

use super::{Length, Running, TURN, Workload, WorkloadResult, memory_of, started};
use crate::beside::Companion;
use crate::latency::{Latencies, Latency};
use crate::process::{ChildProcess, ProcessCpus, command, run};
use crate::slices::{SLICE, Slice, Speeds};
use crate::stop::Stop;

/// A user other than root.
const NOBODY: u32 = 65534;
/// Approximate bytes of a unit of pgbench's scale, with its index.
const UNIT: u64 = 15 << 20;
/// Rows of a unit.
const ROWS: u64 = 100_000;
/// One row of this many is read.
const HOT: u64 = 40;
/// Weights of the two scripts.
const SCANS: [&str; 4] = ["-f", "script@199", "-f", "scan@1"];
const TIMEOUT: Duration = Duration::from_secs(300);
/// A load runs longer than it is measured by this, also while swap is emptied.
const LONGER: Duration = Duration::from_secs(10);

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Postgres {
    /// size: three fifths are tables, and a quarter is shared buffers
    pub bytes: u64,
    /// whether one transaction of 200 reads all rows; the shared buffers are then three quarters, and hold all rows
    pub scans: bool,
    /// seed of the random numbers
    pub seed: u64,
}

impl Postgres {
    fn scale(&self) -> u64 {
        (self.bytes * 3 / 5 / UNIT).max(1)
    }

    fn buffers(&self) -> u64 {
        if self.scans { self.bytes * 3 / 4 } else { self.bytes / 4 }
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
        Ok(Box::new(self.database(place.join("postgres"), stop)?))
    }
}

impl Postgres {
    /// A server with its tables. Creates `own` for our files.
    fn database(&self, own: PathBuf, stop: &Stop) -> Result<Database> {
        let bin = programs()?;
        // Only the server's user has access, because any client of the socket can control the server.
        let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()?;
        std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY))?;
        // Root writes its files in a folder in which no other user can create a link.
        std::fs::create_dir(&own)?;
        let mut init = as_nobody(&bin.join("initdb"))?;
        init.args(["--no-sync", "-A", "trust", "-U", "test", "-D"]).arg(dir.path().join("data"));
        run("initdb", &mut init, stop, TIMEOUT)?;
        let server = serve(&bin, dir.path(), File::create(own.join("log"))?, self.buffers())?;
        let mut database = Database { what: *self, server, idle: None, bin, dir, own };
        database.fill(stop)?;
        Ok(database)
    }
}

fn as_nobody(program: &Path) -> Result<Command> {
    let mut command = command(ProcessCpus::Workload, "setpriv")?;
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--pdeathsig", "KILL"]);
    // As a service has it with LimitMEMLOCK=infinity: its memory may be locked.
    command.args(["--inh-caps", "+ipc_lock", "--ambient-caps", "+ipc_lock"]);
    command.arg(program).current_dir("/");
    Ok(command)
}

fn serve(bin: &Path, dir: &Path, log: File, buffers: u64) -> Result<ChildProcess> {
    let mut command = as_nobody(&bin.join("postgres"))?;
    command.arg("-D").arg(dir.join("data"));
    let socket = format!("unix_socket_directories={}", dir.display());
    let buffers = format!("shared_buffers={}MB", (buffers >> 20).max(16));
    for setting in
        [&socket, &buffers, "listen_addresses=", "fsync=off", "autovacuum=off", "jit=off"]
    {
        command.args(["-c", setting]);
    }
    command.stdout(Stdio::null()).stderr(log);
    // This signal also ends its backends.
    ChildProcess::start("postgres", &mut command, Signal::QUIT)
}

struct Database {
    what: Postgres,
    server: ChildProcess,
    /// The client that has read all rows and stays connected, because memory that no process maps does not
    /// count.
    idle: Option<ChildProcess>,
    bin: PathBuf,
    /// the server's files: its data and its socket
    dir: TempDir,
    /// our files for it
    own: PathBuf,
}

impl Database {
    fn client(&self, program: &str) -> Result<Command> {
        let mut command = command(ProcessCpus::Beside, self.bin.join(program))?;
        command.args(["-U", "test", "-h"]).arg(self.dir.path()).current_dir(&self.own);
        Ok(command)
    }

    /// Creates the rows. The client that stays reads them into the shared buffers.
    fn fill(&mut self, stop: &Stop) -> Result<()> {
        let scale = self.what.scale();
        let socket = self.dir.path().join(".s.PGSQL.5432");
        self.server.until(stop, TIMEOUT, || socket.exists())?;
        let mut init = self.client("pgbench")?;
        init.args(["-i", "-q", "--unlogged-tables", "-s", &scale.to_string(), "postgres"]);
        run("pgbench -i", &mut init, stop, TIMEOUT)?;
        let mut read = self.client("psql")?;
        read.args(["-X", "-q", "-d", "postgres", "-v", "ON_ERROR_STOP=1"]);
        let read_all = "select pg_prewarm('pgbench_accounts')";
        let words =
            ["create extension pg_prewarm", read_all, "\\! touch read", "select pg_sleep(1e6)"];
        read.args(words.iter().flat_map(|word| ["-c", *word]));
        read.stdout(Stdio::null()).stderr(Stdio::null());
        let mut reader = ChildProcess::start("psql", &mut read, Signal::TERM)?;
        let read = self.own.join("read");
        reader.until(stop, TIMEOUT, || read.exists())?;
        self.idle = Some(reader);
        let hot = scale * ROWS / HOT;
        let script = format!(
            "\\set aid random(1, {hot})\nselect abalance from pgbench_accounts where aid = :aid;\n"
        );
        write(self.own.join("script"), script)?;
        Ok(write(self.own.join("scan"), "select sum(abalance) from pgbench_accounts;\n")?)
    }

    /// Starts a load of this length.
    fn load(&self, length: Duration) -> Result<ChildProcess> {
        let mut bench = self.client("pgbench")?;
        let (seconds, seed) = (length.as_secs().max(1), self.what.seed);
        bench.args(["-n", "-c", "1", "-M", "prepared", "-l", "--log-prefix=times"]);
        bench.args(if self.what.scans { &SCANS[..] } else { &["-f", "script"] });
        bench.args([&format!("-T{seconds}"), &format!("--random-seed={seed}"), "postgres"]);
        bench.stdout(Stdio::null()).stderr(Stdio::null());
        ChildProcess::start("pgbench", &mut bench, Signal::TERM)
    }

    /// Waits for the end of a load, and reads its log.
    fn end(&self, mut load: ChildProcess, stop: &Stop) -> Result<Vec<Transaction>> {
        load.wait(stop, TIMEOUT)?;
        let log = self.own.join(format!("times.{}", load.pid()));
        let text = read_to_string(&log).context("pgbench logged nothing")?;
        std::fs::remove_file(log)?;
        Ok(text.lines().filter_map(transaction).collect())
    }

    /// A second server with the same load, which isotherm does not know.
    fn twin(&self, stop: &Stop) -> Result<Database> {
        self.what.database(self.own.join("twin"), stop)
    }

    /// Bytes of its processes and of its files, all of which were written or read recently.
    fn memory(&self) -> u64 {
        let (mut bytes, mut dirs) = (memory_of(self.pid()), vec![self.dir.path().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(m) if m.is_dir() => dirs.push(entry.path()),
                    Ok(m) => bytes += m.len(),
                    Err(_) => {}
                }
            }
        }
        bytes
    }
}

/// Running loads: that of a server, and that of its twin.
struct Loads {
    own: ChildProcess,
    twin: Option<ChildProcess>,
}

/// The times at which each load was resumed, since 1970.
#[derive(Debug, Default)]
struct Times {
    own: Vec<Range<Duration>>,
    twin: Vec<Range<Duration>>,
}

impl Loads {
    fn start(own: &Database, twin: Option<&Database>, length: Duration) -> Result<Self> {
        let twin = twin.map(|twin| twin.load(length)).transpose()?;
        Ok(Loads { own: own.load(length)?, twin })
    }

    /// Resumes the load for this time; with a twin, both alternately.
    fn go_on(&self, length: Duration, stop: &Stop) -> Result<Times> {
        let turn = |length| {
            let begin = now()?;
            stop.sleep(length)?;
            Ok::<_, anyhow::Error>(begin..now()?)
        };
        let Some(twin) = &self.twin else {
            return Ok(Times { own: vec![turn(length)?], twin: Vec::new() });
        };
        let (begin, mut times) = (Instant::now(), Times::default());
        while begin.elapsed() < length {
            twin.signal(Signal::STOP)?;
            self.own.signal(Signal::CONT)?;
            times.own.push(turn(TURN)?);
            self.own.signal(Signal::STOP)?;
            twin.signal(Signal::CONT)?;
            times.twin.push(turn(TURN)?);
        }
        Ok(times)
    }

    /// Waits for the ends of the loads, which must run until now. Computes from their logs their rates in
    /// each slice, and returns all transactions of the server itself.
    fn end(
        mut self,
        own: &Database,
        twin: Option<&Database>,
        slices: &[Slice<Times>],
        stop: &Stop,
    ) -> Result<(Vec<Slice<Speeds>>, Vec<Transaction>)> {
        for load in [Some(&mut self.own), self.twin.as_mut()].into_iter().flatten() {
            load.check()?;
            load.signal(Signal::CONT)?;
        }
        let own = own.end(self.own, stop)?;
        let twin = self.twin.zip(twin).map(|(load, twin)| twin.end(load, stop)).transpose()?;
        let speeds = |s: &Slice<Times>| {
            let twin = twin.as_ref().map_or(1.0, |all| rate(all, &s.found.twin));
            let found = Speeds { twin, ..Speeds::alone(rate(&own, &s.found.own)) };
            Slice { watched: s.watched, found }
        };
        Ok((slices.iter().map(speeds).collect(), own))
    }
}

/// The time since 1970.
fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

impl Running for Database {
    fn pid(&self) -> i32 {
        self.server.pid()
    }

    fn family(&self) -> bool {
        true
    }

    /// Runs a load for the lead-in, then another one, whose log gives the time of each transaction. If the effect
    /// of isotherm lasts, a twin has the same load alternately.
    fn work(
        &mut self,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult> {
        let (mut twin, mut loads, mut found) = (None, None, Vec::new());
        let before = beside.length_before(SLICE);
        let slices = beside.before(SLICE, |length| {
            let twin = started(&mut twin, || self.twin(stop))?;
            started(&mut loads, || Loads::start(self, Some(twin), before + LONGER))?
                .go_on(length, stop)
        })?;
        if let Some(loads) = loads {
            found = loads.end(self, twin.as_ref(), &slices, stop)?.0;
        }
        let load = self.load(length.lead_in)?;
        stop.sleep(length.lead_in)?;
        self.end(load, stop)?;
        beside.begin()?;
        let most = beside.length(length.measured, SLICE) + LONGER;
        let loads = Loads::start(self, twin.as_ref(), most)?;
        let slices = beside.slices(length.measured, SLICE, |length| loads.go_on(length, stop))?;
        let (speeds, all) = loads.end(self, twin.as_ref(), &slices, stop)?;
        self.server.check()?;
        self.idle.as_mut().map_or(Ok(()), ChildProcess::check)?;
        found.extend(speeds);
        let at_work: Vec<_> =
            slices.iter().filter(|s| s.watched).flat_map(|s| &s.found.own).collect();
        let those = all.iter().filter(|t| at_work.iter().any(|time| t.is_within(time)));
        let apart = twin.as_ref().map_or(0, Database::memory);
        Ok(WorkloadResult { latency: latency(those)?, apart, ..WorkloadResult::by_slices(&found)? })
    }
}

/// The end of a transaction, since 1970, and its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transaction {
    end: Duration,
    took: Duration,
}

impl Transaction {
    /// Whether it ran completely within `time`. Its client may have been stopped during it otherwise.
    fn is_within(&self, time: &Range<Duration>) -> bool {
        time.contains(&self.end) && time.contains(&self.end.saturating_sub(self.took))
    }
}

/// Parses a line of the log. The third number is the duration in microseconds; the fifth and sixth are
/// seconds and microseconds since 1970.
fn transaction(line: &str) -> Option<Transaction> {
    let numbers: Vec<u64> = line.split(' ').map_while(|n| n.parse().ok()).collect();
    let &[_, _, took, _, seconds, micros, ..] = numbers.as_slice() else { return None };
    let end = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Some(Transaction { end, took: Duration::from_micros(took) })
}

/// Transactions per second in these times.
fn rate(all: &[Transaction], times: &[Range<Duration>]) -> f64 {
    let count = all.iter().filter(|t| times.iter().any(|time| time.contains(&t.end))).count();
    let length: Duration = times.iter().map(|time| time.end.saturating_sub(time.start)).sum();
    count as f64 / length.as_secs_f64().max(1e-9)
}

fn latency<'a>(all: impl Iterator<Item = &'a Transaction>) -> Result<Option<Latency>> {
    let mut seen = Latencies::new()?;
    all.for_each(|t| seen.add(t.took));
    Ok(seen.percentiles())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_notes() {
        let at = |micros| Duration::from_secs(1_700_000_000) + Duration::from_micros(micros);
        let log = "0 1 40 0 1700000000 5\n0 2 60 0 1700000000 500009\n0 3 cut";
        let all: Vec<_> = log.lines().filter_map(transaction).collect();
        assert_eq!(all[1], Transaction { end: at(500_009), took: Duration::from_micros(60) });
        assert_eq!(all.len(), 2);
        assert_eq!(rate(&all, &[at(0)..at(1_000_000)]), 2.0);
        assert_eq!(rate(&all, &[at(500_000)..at(750_000)]), 4.0);
        assert_eq!(rate(&all, &[at(0)..at(200_000), at(400_000)..at(700_000)]), 4.0);
        let within = |from| all.iter().filter(|t| t.is_within(&(at(from)..at(1_000_000)))).count();
        assert_eq!((within(0), within(499_940), within(499_950)), (1, 1, 0));
        let percentiles = latency(all.iter()).unwrap().unwrap();
        assert!(
            (percentiles.p50 - 40.0).abs() < 1.0 && (percentiles.p99 - 60.0).abs() < 1.0,
            "{percentiles:?}"
        );
    }
}
