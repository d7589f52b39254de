//! Listeners and their clients: one `poll` waits for all of them, and the monitor never waits for a client.

mod client;
mod ends;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use client::{Client, Framing};
pub use ends::Ends;

/// Maximum number of connections. If all are in use, a new one replaces the one that was silent for the longest
/// time.
const MAX_CLIENTS: usize = 32;
/// Maximum number of connections per process.
const MAX_OF_PEER: usize = 8;
/// Time in which a new client has not been silent for long enough to be replaced.
const MAY_BE_SILENT: Duration = Duration::from_millis(200);
/// Maximum number of connections accepted at once.
const MAX_ACCEPTED: usize = 8;
/// Pause after a connection that could not be accepted, because descriptors or memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A source of connections.
pub trait Listen: AsFd {
    type Stream: Read + Write + AsFd;

    /// The next connection, as a stream that does not block.
    fn accept(&self) -> io::Result<Self::Stream>;
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = UnixListener::accept(self)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = TcpListener::accept(self)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// A listener that does not block, and its clients.
pub struct Served<L: Listen> {
    listener: L,
    framing: Framing,
    /// makes the answer for a refused client from the reason
    refusal: fn(&str) -> Vec<u8>,
    clients: Vec<Client<L::Stream>>,
    /// no connection is accepted until then
    paused_until: Nanos,
}

/// Something that one `poll` can wait for together with others.
pub trait Wait {
    /// Drops connections that are finished. Returns whether work is waiting already, so that no wait is
    /// necessary.
    fn settle(&mut self, now: Nanos) -> bool;

    /// Adds the descriptors to wait for.
    fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>);

    /// Does the work that is possible without blocking. `ready` says for each of [`Wait::fds`] whether it is
    /// ready.
    fn go_on(&mut self, ready: &[bool]);
}

/// Waits until the given time, or until one of `all` has something to do.
pub fn wait(all: &mut [&mut dyn Wait], until: Nanos) {
    let now = sys::monotonic();
    let pending = all.iter_mut().fold(false, |any, one| one.settle(now) | any);
    let time = if pending { Duration::ZERO } else { until.since(now) };
    let (mut fds, mut counts) = (Vec::new(), Vec::new());
    for one in all.iter() {
        one.fds(&mut fds);
        counts.push(fds.len() - counts.iter().sum::<usize>());
    }
    let ready = ready(&mut fds, time);
    let mut rest = ready.as_slice();
    for (one, count) in all.iter_mut().zip(counts) {
        let (own, others) = rest.split_at_checked(count).unwrap_or_default();
        one.go_on(own);
        rest = others;
    }
}

/// Waits at most `time`, and returns for each descriptor whether it is ready.
fn ready(fds: &mut [PollFd<'_>], time: Duration) -> Vec<bool> {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // A signal ends the wait early, which does no harm.
    match poll(fds, Some(&time)) {
        Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
        Err(_) => Vec::new(),
    }
}

impl<L: Listen> Served<L> {
    /// Serves a listener that does not block; `refusal` makes an answer from the reason for a refusal.
    pub fn new(listener: L, framing: Framing, refusal: fn(&str) -> Vec<u8>) -> Self {
        Served { listener, framing, refusal, clients: Vec::new(), paused_until: Nanos(0) }
    }

    /// Accepts new connections. `admit` returns the pid of the peer, if known, or the reason to refuse it.
    pub fn accept(&mut self, mut admit: impl FnMut(&L::Stream) -> Result<Option<i32>, String>) {
        for _ in 0..MAX_ACCEPTED {
            let now = sys::monotonic();
            if !self.has_room(now) {
                return;
            }
            let stream = match self.listener.accept() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.paused_until = now + ACCEPT_PAUSE,
                Ok(stream) => stream,
            };
            self.make_room();
            let admitted = admit(&stream).and_then(|peer| self.check(peer).map(|()| peer));
            let peer = admitted.as_ref().ok().copied().flatten();
            let mut client = Client::new(stream, self.framing, peer, now);
            match admitted {
                // Most clients write as soon as they are connected.
                Ok(_) => client.go_on(),
                Err(why) => client.answer(&(self.refusal)(&why), now, true),
            }
            self.clients.push(client);
        }
    }

    /// Fails if a process already has too many connections.
    fn check(&self, peer: Option<i32>) -> Result<(), String> {
        let Some(pid) = peer else { return Ok(()) };
        match self.clients.iter().filter(|client| client.peer == peer).count() {
            MAX_OF_PEER.. => Err(format!(
                "process {pid} has {MAX_OF_PEER} connections open here, the maximum of one \
                 process: close idle ones"
            )),
            _ => Ok(()),
        }
    }

    /// Whether a connection can be accepted.
    fn has_room(&self, now: Nanos) -> bool {
        let silent = |client: &Client<L::Stream>| client.silence(now) >= Some(MAY_BE_SILENT);
        let room = self.clients.len() < MAX_CLIENTS || self.clients.iter().any(silent);
        room && now >= self.paused_until
    }

    /// If all connections are in use, drops the client that was silent for the longest time.
    fn make_room(&mut self) {
        if self.clients.len() < MAX_CLIENTS {
            return;
        }
        let now = sys::monotonic();
        let silent = self.clients.iter().enumerate();
        let longest = silent.max_by_key(|(_, client)| client.silence(now)).map(|(at, _)| at);
        if let Some(at) = longest {
            let mut client = self.clients.remove(at);
            let why = "closed: this connection was idle, and others are waiting. Connect again";
            client.answer(&(self.refusal)(why), now, true);
        }
    }

    /// The requests that have arrived, each with the number of its client.
    pub fn requests(&mut self) -> Vec<(usize, Result<Vec<u8>, String>)> {
        let clients = self.clients.iter_mut().enumerate();
        clients.filter_map(|(i, client)| Some((i, client.request()?))).collect()
    }

    /// Answers one of the requests that [`Served::requests`] has just returned. After the `last` answer,
    /// nothing more is read from this client.
    pub fn answer(&mut self, client: usize, bytes: &[u8], last: bool) {
        if let Some(client) = self.clients.get_mut(client) {
            client.answer(bytes, sys::monotonic(), last);
        }
    }

    /// See [`Wait::settle`].
    pub fn settle(&mut self, now: Nanos) -> bool {
        let refusal = self.refusal;
        self.clients.retain_mut(|client| {
            if client.is_late(now) {
                let why = "closed: no complete request came in time. Connect again";
                client.answer(&refusal(why), now, true);
            }
            client.stays(now)
        });
        self.clients.iter().any(Client::has_request)
    }

    /// The descriptor of each client, then that of the listener.
    pub fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        out.extend(self.clients.iter().map(|c| PollFd::from_borrowed_fd(c.fd(), c.awaited())));
        // While there is no room, the listener is left out: a connection that is not accepted would end each
        // wait at once.
        let room = self.has_room(sys::monotonic());
        let flags = if room { PollFlags::IN } else { PollFlags::empty() };
        out.push(PollFd::from_borrowed_fd(self.listener.as_fd(), flags));
    }

    /// Reads from and writes to the clients that are ready. Returns whether a new connection is waiting.
    pub fn go_on(&mut self, ready: &[bool]) -> bool {
        for (client, _) in self.clients.iter_mut().zip(ready).filter(|(_, ready)| **ready) {
            client.go_on();
        }
        ready.get(self.clients.len()).is_some_and(|&come| come)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptors are short.
    struct Short(UnixListener);

    impl AsFd for Short {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Listen for Short {
        type Stream = UnixStream;

        fn accept(&self) -> io::Result<UnixStream> {
            Err(rustix::io::Errno::MFILE.into())
        }
    }

    /// Found by an audit: the connection stayed in the backlog, and ended each wait at once.
    #[test]
    fn a_connection_that_cannot_be_accepted_does_not_end_each_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let listener = Short(UnixListener::bind(path).unwrap());
        let mut served = Served::new(listener, Framing { end: b"\n", max: 1 }, |_| Vec::new());
        let before = sys::monotonic();
        assert!(served.has_room(before));
        served.accept(|_| Ok(None));
        assert!(!served.has_room(before));
        assert!(served.has_room(sys::monotonic() + ACCEPT_PAUSE));
    }
}
