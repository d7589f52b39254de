//! A redis-server alone on a CPU, of whose keys a few are read.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Signal;

use super::resp::{ClosedLoop, connect, fill};
use super::{
    Contents, Length, OpenLoop, Running, TURN, Workload, WorkloadResult, memory_of, started,
};
use crate::beside::Companion;
use crate::latency::Latencies;
use crate::process::{ChildProcess, ProcessCpus};
use crate::slices::{SLICE, Speeds};
use crate::small_pages;
use crate::stop::Stop;

/// Approximate memory of a key with its value in redis.
const EACH: u64 = 1150;
/// One key of this many is read. So few keys are read that each of their pages is touched more often than the
/// rate below which prcl counts memory as cold.
const HOT: u32 = 40;

/// The placement of the keys that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// adjacent: they were set one after the other
    Together,
    /// scattered over all memory
    Hashed,
    /// adjacent for seven requests of eight; every eighth one is for the next of all keys, as a backup or a
    /// migration reads them
    Scanned,
}

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Redis {
    /// the keys that are read
    pub keys: Keys,
    /// approximate size of all keys with their values
    pub bytes: u64,
    /// requests per second of the open loop
    pub rate: u64,
    /// seed of the random numbers
    pub seed: u64,
}

impl Redis {
    /// The number of its keys.
    pub fn count(&self) -> u32 {
        u32::try_from(self.bytes / EACH).unwrap_or(u32::MAX).max(HOT)
    }
}

impl Workload for Redis {
    fn name(&self) -> &str {
        match self.keys {
            Keys::Together => "redis-together",
            Keys::Hashed => "redis-hashed",
            Keys::Scanned => "redis",
        }
    }

    fn memory(&self) -> u64 {
        self.bytes * 3 / 2
    }

    fn start(&self, place: &Path, stop: &Stop) -> Result<Box<dyn Running>> {
        Ok(Box::new(Server::start(self, place, true, stop)?))
    }
}

/// The server with its keys, and its clients.
#[derive(Debug)]
pub struct Server {
    redis: Redis,
    process: ChildProcess,
    socket: PathBuf,
    contents: Contents,
    reader: Reader,
}

/// A server with the same keys that isotherm does not know, without huge pages, and its client.
#[derive(Debug)]
struct Twin {
    server: Server,
    closed: ClosedLoop,
}

/// Draws hot keys, all equally likely; and other keys in order, if there is a scan.
#[derive(Debug)]
struct Reader {
    hot: Vec<u32>,
    random: Xoshiro256PlusPlus,
    scan: Option<Scan>,
}

/// A scan of all keys.
#[derive(Debug)]
struct Scan {
    count: u32,
    next: u32,
    /// requests so far
    requests: u32,
}

impl Scan {
    /// One request of this many belongs to the scan.
    const SCAN_ONE_IN: u32 = 8;

    /// The key of the next request, if it belongs to the scan.
    fn next(&mut self) -> Option<u32> {
        self.requests = (self.requests + 1) % Self::SCAN_ONE_IN;
        if self.requests != 0 {
            return None;
        }
        self.next = (self.next + 1) % self.count;
        Some(self.next)
    }
}

impl Reader {
    fn new(keys: Keys, count: u32, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (hot, first) = (count / HOT, count / 4);
        let hot = match keys {
            Keys::Together | Keys::Scanned => (first..first + hot).collect(),
            Keys::Hashed => (0..hot).map(|i| i * HOT + random.next_u32() % HOT).collect(),
        };
        let scan = (keys == Keys::Scanned).then_some(Scan { count, next: 0, requests: 0 });
        Reader { hot, random, scan }
    }

    fn draw(&mut self) -> u32 {
        if let Some(key) = self.scan.as_mut().and_then(Scan::next) {
            return key;
        }
        let at = self.random.next_u64() % (self.hot.len() as u64).max(1);
        self.hot.get(usize::try_from(at).unwrap_or(0)).copied().unwrap_or(0)
    }
}

impl Server {
    /// Starts the server, with `huge` pages if the machine has them, and sets all keys.
    pub fn start(redis: &Redis, place: &Path, huge: bool, stop: &Stop) -> Result<Self> {
        let socket = place.join("redis.sock");
        let program = Path::new("redis-server");
        let mut command = small_pages::command(ProcessCpus::Workload, program, huge)?;
        // The setting of the machine decides about huge pages.
        command.args(["--disable-thp", "no"]);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&socket).arg("--dir").arg(place).stdout(Stdio::null());
        let mut process = ChildProcess::start("redis-server", &mut command, Signal::TERM)?;
        let ready = || connect(&socket).is_ok();
        process.until(stop, Duration::from_secs(20), ready)?;
        let contents = Contents::new(redis.seed);
        let reader = Reader::new(redis.keys, redis.count(), redis.seed);
        let mut server = Server { redis: *redis, process, socket, contents, reader };
        server.set_anew(0, redis.count()).context("cannot fill redis")?;
        Ok(server)
    }

    /// Sets `count` keys again, from `first` on.
    pub fn set_anew(&mut self, first: u32, count: u32) -> Result<()> {
        let contents = &mut self.contents;
        fill(&self.socket, first..first.saturating_add(count), |value| contents.fill(value))
    }

    /// Reads hot keys in an open loop, and adds the latency of each answer to `seen`.
    pub fn open_loop(&mut self, length: Duration, seen: &mut Latencies, stop: &Stop) -> Result<()> {
        let open = OpenLoop::start(&self.socket, self.redis.rate)?;
        open.run(length, || self.reader.draw(), seen, stop)
    }

    /// Requests per second of a closed loop.
    fn closed_loop(
        &mut self,
        closed: &mut ClosedLoop,
        length: Duration,
        stop: &Stop,
    ) -> Result<f64> {
        let (begin, mut count) = (Instant::now(), 0);
        while begin.elapsed() < length {
            stop.check()?;
            count += closed.round(|| self.reader.draw())?;
        }
        Ok(count as f64 / begin.elapsed().as_secs_f64())
    }

    fn twin(&self, stop: &Stop) -> Result<Twin> {
        let place = self.socket.with_file_name("twin");
        std::fs::create_dir(&place)?;
        let mut server = Server::start(&self.redis, &place, false, stop)?;
        let closed = ClosedLoop::start(&server.socket, || server.reader.draw())?;
        Ok(Twin { server, closed })
    }

    /// Requests per second of two alternating closed loops: of the server, and of its twin.
    fn in_turn(
        &mut self,
        closed: &mut ClosedLoop,
        twin: &mut Twin,
        length: Duration,
        stop: &Stop,
    ) -> Result<Speeds> {
        let (begin, mut rates) = (Instant::now(), Vec::new());
        while begin.elapsed() < length {
            let own = self.closed_loop(closed, TURN, stop)?;
            rates.push((own, twin.server.closed_loop(&mut twin.closed, TURN, stop)?));
        }
        let mean = |of: fn(&(f64, f64)) -> f64| {
            rates.iter().map(of).sum::<f64>() / rates.len().max(1) as f64
        };
        Ok(Speeds { own: mean(|r| r.0), twin: mean(|r| r.1), busy: 1.0 })
    }
}

impl Running for Server {
    fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Half of the time an open loop measures latencies, then a closed one measures requests per second. The
    /// effect of isotherm or of huge pages may last longer than the machine keeps its speed. Then the server has a
    /// twin, whose requests show that speed.
    fn work(
        &mut self,
        length: Length,
        beside: &mut Companion<'_>,
        stop: &Stop,
    ) -> Result<WorkloadResult> {
        let mut closed = ClosedLoop::start(&self.socket, || self.reader.draw())?;
        if self.redis.keys == Keys::Scanned {
            self.closed_loop(&mut closed, length.lead_in, stop)?;
            beside.begin()?;
            let slices = beside.slices(length.measured, SLICE, |length| {
                Ok(Speeds::alone(self.closed_loop(&mut closed, length, stop)?))
            })?;
            self.process.check()?;
            return WorkloadResult::by_slices(&slices);
        }
        let takes_turns = beside.takes_turns();
        let mut twin = (!takes_turns).then(|| self.twin(stop)).transpose()?;
        let mut slices = beside.before(SLICE, |length| {
            let twin = started(&mut twin, || self.twin(stop))?;
            self.in_turn(&mut closed, twin, length, stop)
        })?;
        drop(closed);
        self.open_loop(length.lead_in, &mut Latencies::new()?, stop)?;
        beside.begin()?;
        let mut seen = Latencies::new()?;
        self.open_loop(length.measured / 2, &mut seen, stop)?;
        let mut closed = ClosedLoop::start(&self.socket, || self.reader.draw())?;
        let time = length.measured / 2;
        let speeds = |length| match &mut twin {
            Some(twin) => self.in_turn(&mut closed, twin, length, stop),
            None => Ok(Speeds::alone(self.closed_loop(&mut closed, length, stop)?)),
        };
        let done = if takes_turns {
            slices.extend(beside.slices(time, SLICE, speeds)?);
            WorkloadResult::by_slices(&slices)?
        } else {
            WorkloadResult::against_twin(time, speeds)?
        };
        self.process.check()?;
        let apart = twin.map_or(0, |twin| memory_of(twin.server.pid()));
        Ok(WorkloadResult { latency: seen.percentiles(), apart, ..done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_lie_together_or_all_over() {
        for keys in [Keys::Together, Keys::Hashed] {
            let reader = Reader::new(keys, 10_000, 1);
            assert_eq!(reader.hot.len(), 250);
            assert!(reader.hot.is_sorted_by(|a, b| a < b));
            let span = reader.hot[249] - reader.hot[0];
            assert_eq!(span < 250, keys == Keys::Together, "{span}");
        }
    }
}
