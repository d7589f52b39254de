//! Requests at a fixed rate, whether or not previous ones have been answered. A latency counts from the time at
//! which the request was due, so that a stall of the server includes all requests that would have waited.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::resp::{Answers, connect, get};
use crate::latency::Latencies;
use crate::stop::Stop;

/// Requests that are due within this time are sent together.
const TICK: Duration = Duration::from_micros(200);
/// Time limit for pending answers at the end; after it, they count with the time waited so far.
const MAX_DRAIN: Duration = Duration::from_secs(10);

/// The times at which requests are due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestSchedule {
    /// requests per second
    rate: u64,
}

impl RequestSchedule {
    /// A schedule with a rate of at least 1.
    pub fn new(rate: u64) -> Self {
        RequestSchedule { rate: rate.max(1) }
    }

    /// The number of requests that are due by this time after the first.
    pub fn by(&self, time: Duration) -> u64 {
        let count = time.as_nanos() * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// The time at which request `n` is due, after the first one (number 0).
    pub fn time(&self, number: u64) -> Duration {
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A load on one connection.
#[derive(Debug)]
pub struct OpenLoop {
    stream: UnixStream,
    due: RequestSchedule,
    asked: u64,
    answered: u64,
    answers: Answers,
    /// partly written requests
    out: Vec<u8>,
    written: usize,
}

impl OpenLoop {
    /// Connects.
    pub fn start(socket: &Path, rate: u64) -> Result<Self> {
        let stream = connect(socket)?;
        stream.set_nonblocking(true)?;
        Ok(OpenLoop {
            stream,
            due: RequestSchedule::new(rate),
            asked: 0,
            answered: 0,
            answers: Answers::default(),
            out: Vec::new(),
            written: 0,
        })
    }

    /// Sends requests for `length`, and waits for the last answers. Adds the latency of each to `seen`.
    pub fn run(
        mut self,
        length: Duration,
        mut key: impl FnMut() -> u32,
        seen: &mut Latencies,
        stop: &Stop,
    ) -> Result<()> {
        let begin = Instant::now();
        let total = self.due.by(length);
        while self.answered < total {
            stop.check()?;
            let now = begin.elapsed();
            if now >= length + MAX_DRAIN {
                // Requests without an answer count with the time waited so far.
                (self.answered..total).for_each(|n| seen.add(now.saturating_sub(self.due.time(n))));
                return Ok(());
            }
            for _ in self.asked..self.due.by(now).min(total) {
                get(key(), &mut self.out);
                self.asked += 1;
            }
            self.write()?;
            if !self.read(begin, seen)? {
                self.wait(begin)?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e).context("cannot ask redis"),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads answers. Returns whether there were any.
    fn read(&mut self, begin: Instant, seen: &mut Latencies) -> Result<bool> {
        let mut buffer = [0; 1 << 16];
        let read = match self.stream.read(&mut buffer) {
            Ok(0) => anyhow::bail!("redis has closed the connection"),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e).context("redis does not answer"),
        };
        let now = begin.elapsed();
        let count = self.answers.take(buffer.get(..read).unwrap_or_default())?;
        for number in self.answered..self.answered + count {
            seen.add(now.saturating_sub(self.due.time(number)));
        }
        self.answered += count;
        Ok(true)
    }

    /// Waits until there is something to read, or another request is due.
    fn wait(&mut self, begin: Instant) -> Result<()> {
        let next = self.due.time(self.asked) + TICK;
        let left = next.saturating_sub(begin.elapsed()).min(Duration::from_millis(50));
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, !self.out.is_empty());
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.stream, events)], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e).context("cannot wait for redis"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_and_counts_agree() {
        for rate in [1, 3, 1000, 50_000, 999_999] {
            let due = RequestSchedule::new(rate);
            assert_eq!((due.by(Duration::ZERO), due.time(0)), (1, Duration::ZERO));
            for number in [1, 2, 7, 1000, 123_457] {
                let time = due.time(number);
                assert!(due.by(time + Duration::from_nanos(1)) == number + 1, "{rate}: {number}");
                assert!(due.by(time.saturating_sub(Duration::from_nanos(1))) <= number);
            }
            assert_eq!(due.time(rate * 60), Duration::from_secs(60));
        }
    }

    /// A late server delays all requests that were due in this time, not only one.
    #[test]
    fn a_stall_counts_for_all_that_were_due() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::thread::sleep(Duration::from_millis(400));
            let (mut asked, mut owed, mut request) = ([0; 4096], 0, Vec::new());
            get(0, &mut request);
            while let Ok(n) = stream.read(&mut asked) {
                owed += n;
                if n == 0 {
                    return;
                }
                let value = [b"$100\r\n".as_slice(), &[b'x'; 100], b"\r\n"].concat();
                let count = owed / request.len();
                owed %= request.len();
                stream.write_all(&value.repeat(count)).unwrap();
            }
        });
        let open = OpenLoop::start(&path, 1000).unwrap();
        let mut seen = Latencies::new().unwrap();
        open.run(Duration::from_millis(800), || 7, &mut seen, &Stop::default()).unwrap();
        let percentiles = seen.percentiles().unwrap();
        server.join().unwrap();
        // The first 400 of 800 requests wait for 200 ms on average. On a busy machine this test may begin
        // late.
        assert!(percentiles.p99 > 100e3, "{percentiles:?}");
        assert!(percentiles.p50 < 350e3, "{percentiles:?}");
    }
}
