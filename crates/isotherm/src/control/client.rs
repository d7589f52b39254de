//! One who is connected: lines that come, and what is still to be sent.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use isotherm_core::Nanos;
use rustix::event::PollFlags;

use super::MAX_LINE;

/// How long a client may take for a line, and to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is read at once.
const CHUNK: usize = 64 << 10;

pub struct Client {
    stream: UnixStream,
    coming: Vec<u8>,
    going: Vec<u8>,
    /// when it is done without
    until: Nanos,
    /// nothing more comes, or is heard
    ending: bool,
}

impl Client {
    pub fn new(stream: UnixStream, now: Nanos) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (coming, going) = (Vec::new(), Vec::new());
        Ok(Client { stream, coming, going, until: now + PATIENCE, ending: false })
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
        now < self.until && !(self.ending && self.going.is_empty() && !self.has_line())
    }

    /// Whether a request of its can be answered without waiting.
    pub fn has_line(&self) -> bool {
        self.going.is_empty() && self.coming.contains(&b'\n')
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
        if self.coming.len() > MAX_LINE {
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

    /// The next line; what is too long is an error, and nothing more is heard.
    pub fn line(&mut self) -> Option<Result<Vec<u8>, String>> {
        if !self.going.is_empty() {
            return None;
        }
        match self.coming.iter().position(|&b| b == b'\n') {
            Some(end) if end <= MAX_LINE => Some(Ok(self.coming.drain(..=end).collect())),
            None if self.coming.len() <= MAX_LINE => None,
            _ => {
                self.coming.clear();
                Some(Err(format!("a request of more than {MAX_LINE} bytes: they are one line")))
            }
        }
    }

    /// Sends an answer; at the `last`, nothing more is heard.
    pub fn answer(&mut self, line: &[u8], now: Nanos, last: bool) {
        self.going.extend_from_slice(line);
        self.going.push(b'\n');
        self.until = now + PATIENCE;
        self.ending |= last;
        if last {
            self.coming.clear();
        }
        self.go_on();
    }
}
