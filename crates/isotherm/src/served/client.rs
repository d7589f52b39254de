//! One who is connected: requests that come, and what is still to be sent.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use isotherm_core::Nanos;
use rustix::event::PollFlags;

/// What a request is.
#[derive(Debug, Clone, Copy)]
pub struct Framing {
    /// what it ends with
    pub end: &'static [u8],
    /// bytes before that at most
    pub max: usize,
}

/// How long a client may take for a request, and to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is read at once.
const CHUNK: usize = 64 << 10;

pub struct Client<S> {
    /// the process at the other end, if that can be told
    pub peer: Option<i32>,
    stream: S,
    framing: Framing,
    coming: Vec<u8>,
    going: Vec<u8>,
    /// when it is done without
    until: Nanos,
    /// nothing more comes, or is heard
    ending: bool,
}

impl<S: Read + Write + AsFd> Client<S> {
    /// On a stream that does not wait.
    pub fn new(stream: S, framing: Framing, peer: Option<i32>, now: Nanos) -> Self {
        let (coming, going) = (Vec::new(), Vec::new());
        Client { peer, stream, framing, coming, going, until: now + PATIENCE, ending: false }
    }

    /// Since when nothing has come to pass: no whole request since it came, or since its last answer.
    pub fn silence(&self, now: Nanos) -> Option<Duration> {
        let since = PATIENCE.saturating_sub(self.until.since(now));
        (!self.has_request()).then_some(since)
    }

    /// Whether it has had its time and is owed nothing, but a word of why it is dropped.
    pub fn is_late(&self, now: Nanos) -> bool {
        now >= self.until && !self.ending && self.going.is_empty() && !self.has_request()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What it is waited for. Who does not take an answer is not heard further.
    pub fn awaited(&self) -> PollFlags {
        if self.going.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Whether it is still to be kept.
    pub fn stays(&self, now: Nanos) -> bool {
        now < self.until && !(self.ending && self.going.is_empty() && !self.has_request())
    }

    /// Whether a request of its can be answered without waiting.
    pub fn has_request(&self) -> bool {
        self.going.is_empty() && self.end().is_some()
    }

    /// Reads, or writes, what can be without waiting.
    pub fn go_on(&mut self) {
        let done = if !self.going.is_empty() {
            self.write()
        } else if self.ending {
            Ok(())
        } else {
            self.read()
        };
        match done {
            Ok(()) => {}
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&e.kind()) => {}
            Err(_) => self.drop_all(),
        }
    }

    fn drop_all(&mut self) {
        self.ending = true;
        self.coming.clear();
        self.going.clear();
    }

    fn read(&mut self) -> io::Result<()> {
        if self.coming.len() > self.framing.max {
            return Ok(());
        }
        let mut chunk = [0; CHUNK];
        let n = self.stream.read(&mut chunk)?;
        self.ending |= n == 0;
        self.coming.extend_from_slice(chunk.get(..n).unwrap_or_default());
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let n = self.stream.write(&self.going)?;
        self.going.drain(..n);
        Ok(())
    }

    /// Where the first request ends.
    fn end(&self) -> Option<usize> {
        let end = self.framing.end;
        self.coming.windows(end.len()).position(|bytes| bytes == end)
    }

    /// The next request; what is too long is an error, and nothing more is heard.
    pub fn request(&mut self) -> Option<Result<Vec<u8>, String>> {
        if !self.going.is_empty() {
            return None;
        }
        match self.end() {
            Some(end) if end <= self.framing.max => {
                Some(Ok(self.coming.drain(..end + self.framing.end.len()).collect()))
            }
            None if self.coming.len() <= self.framing.max => None,
            _ => {
                self.coming.clear();
                Some(Err(format!("a request of more than {} bytes", self.framing.max)))
            }
        }
    }

    /// Sends an answer; at the `last`, nothing more is heard.
    pub fn answer(&mut self, bytes: &[u8], now: Nanos, last: bool) {
        self.going.extend_from_slice(bytes);
        self.until = now + PATIENCE;
        self.ending |= last;
        if last {
            self.coming.clear();
        }
        self.go_on();
    }
}
