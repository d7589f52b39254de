//! One connected client: its requests, and the answers still to be sent.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use isotherm_core::Nanos;
use rustix::event::PollFlags;

/// How requests are separated.
#[derive(Debug, Clone, Copy)]
pub struct Framing {
    /// the bytes that end a request
    pub end: &'static [u8],
    /// maximum length of a request without these bytes, in bytes
    pub max: usize,
}

/// Time limit for a client to send a request, and to receive its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;

pub struct Client<S> {
    /// pid of the peer, if known
    pub peer: Option<i32>,
    stream: S,
    framing: Framing,
    coming: Vec<u8>,
    going: Vec<u8>,
    /// deadline, after which the client is dropped
    until: Nanos,
    /// the peer sends nothing more, or nothing more is read
    ending: bool,
}

impl<S: Read + Write + AsFd> Client<S> {
    /// A client on a stream that does not block.
    pub fn new(stream: S, framing: Framing, peer: Option<i32>, now: Nanos) -> Self {
        let (coming, going) = (Vec::new(), Vec::new());
        Client { peer, stream, framing, coming, going, until: now + TIMEOUT, ending: false }
    }

    /// For how long the client has sent no complete request, since it connected or since its last answer;
    /// `None` if a request is waiting.
    pub fn silence(&self, now: Nanos) -> Option<Duration> {
        let since = TIMEOUT.saturating_sub(self.until.since(now));
        (!self.has_request()).then_some(since)
    }

    /// Whether its deadline has passed and no data remains to be sent. It then gets the reason why it is dropped.
    pub fn is_late(&self, now: Nanos) -> bool {
        now >= self.until && !self.ending && self.going.is_empty() && !self.has_request()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The event to wait for. A client that does not receive its answer is not read.
    pub fn awaited(&self) -> PollFlags {
        if self.going.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Whether the connection is still to be kept.
    pub fn stays(&self, now: Nanos) -> bool {
        now < self.until && !(self.ending && self.going.is_empty() && !self.has_request())
    }

    /// Whether a complete request is waiting and the previous answer has been sent.
    pub fn has_request(&self) -> bool {
        self.going.is_empty() && self.end().is_some()
    }

    /// Reads and writes as far as possible without blocking.
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
        let mut chunk = [0; CHUNK_BYTES];
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

    /// The next request. A request that is too long is an error, and nothing more is read.
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

    /// Sends an answer. If it is the `last`, nothing more is read.
    pub fn answer(&mut self, bytes: &[u8], now: Nanos, last: bool) {
        self.going.extend_from_slice(bytes);
        self.until = now + TIMEOUT;
        self.ending |= last;
        if last {
            self.coming.clear();
        }
        self.go_on();
    }
}
