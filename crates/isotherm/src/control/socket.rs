//! Who listens, and who is connected.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use serde::Serialize;

use super::client::Client;
use super::{Answer, ControlError, Request};

/// Connected at once; who comes then waits until another has gone, which takes some seconds at most.
const MAX_CLIENTS: usize = 8;

/// A socket on which its owner and root may ask. It never waits for a client.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
}

/// Waits until then, or until `control` has to do; returns the requests that have come, each with whom to
/// answer.
pub fn wait(control: Option<&mut Control>, until: Nanos) -> Vec<(usize, Result<Request, String>)> {
    match control {
        Some(control) => control.wait(until),
        None => {
            std::thread::sleep(until.since(sys::monotonic()));
            Vec::new()
        }
    }
}

impl Control {
    /// Listens at `path`, in a folder that is made if it is not there. What a service that is no more has
    /// left there is replaced.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let name = || path.display().to_string();
        let make = |source| ControlError::Make { path: name(), source };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(make(e)),
            _ => {}
        }
        // Of two that begin at once, one finds the other.
        let lock = File::open(dir).map_err(make)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| make(e.into()))?;
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(make)?;
        let control = Control { listener, path: path.to_owned(), clients: Vec::new() };
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(make)?;
        control.listener.set_nonblocking(true).map_err(make)?;
        Ok(control)
    }

    fn wait(&mut self, until: Nanos) -> Vec<(usize, Result<Request, String>)> {
        let now = sys::monotonic();
        self.clients.retain(|client| client.stays(now));
        let pending = self.clients.iter().any(Client::has_line);
        let time = if pending { Duration::ZERO } else { until.since(now) };
        let ready = self.ready(time);
        for (client, ready) in self.clients.iter_mut().zip(&ready) {
            if *ready {
                client.go_on();
            }
        }
        if ready.last().is_some_and(|&ready| ready) && self.clients.len() < MAX_CLIENTS {
            self.accept();
        }
        let lines = self.clients.iter_mut().enumerate();
        lines
            .filter_map(|(i, client)| Some((i, client.line()?.and_then(|line| request(&line)))))
            .collect()
    }

    /// Waits; for each client, and then for the listener, whether there is something to do.
    fn ready(&self, time: Duration) -> Vec<bool> {
        let of = |client| PollFd::from_borrowed_fd(Client::fd(client), Client::awaited(client));
        let mut fds: Vec<PollFd<'_>> = self.clients.iter().map(of).collect();
        // Who is not taken yet would end each wait at once.
        let flags =
            if self.clients.len() < MAX_CLIENTS { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), flags));
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // A signal ends it early, which is as well.
        match poll(&mut fds, Some(&time)) {
            Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn accept(&mut self) {
        let now = sys::monotonic();
        let Ok((stream, _)) = self.listener.accept() else { return };
        let allowed = may_ask(&stream);
        let Ok(mut client) = Client::new(stream, now) else { return };
        if let Err(why) = allowed {
            client.answer(&line(&Answer::<()>::refused(why)), now, true);
        }
        self.clients.push(client);
    }

    /// Answers a request that [`wait`] has returned just now.
    pub fn answer<T: Serialize>(&mut self, client: usize, answer: &Answer<T>) {
        if let Some(client) = self.clients.get_mut(client) {
            client.answer(&line(answer), sys::monotonic(), false);
        }
    }

    /// Answers what was no request; nothing more is heard from who has sent it.
    pub fn refuse(&mut self, client: usize, why: &str) {
        if let Some(client) = self.clients.get_mut(client) {
            let answer = Answer::<()>::refused(why.to_owned());
            client.answer(&line(&answer), sys::monotonic(), true);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The owner of this process, and root.
fn may_ask(stream: &UnixStream) -> Result<(), String> {
    let own = rustix::process::geteuid();
    let peer = socket_peercred(stream).map_err(|e| format!("who asks cannot be told: {e}"))?;
    if peer.uid == own || peer.uid.is_root() {
        return Ok(());
    }
    Err(format!(
        "user {} may not ask this: the service is of user {}, who may, and so may root",
        peer.uid.as_raw(),
        own.as_raw()
    ))
}

fn request(line: &[u8]) -> Result<Request, String> {
    const SHAPES: &str = "write one as {\"do\":\"status\"}: status, pause, resume, stop, commit, \
                          attributes, targets or record";
    serde_json::from_slice(line).map_err(|e| format!("this is no request ({e}): {SHAPES}"))
}

fn line<T: Serialize>(answer: &Answer<T>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_else(|_| b"{\"ok\":false}".to_vec())
}

/// Takes a socket away on which nobody listens.
fn remove_stale(path: &Path) -> Result<(), ControlError> {
    let name = || path.display().to_string();
    let make = |source| ControlError::Make { path: name(), source };
    if !path.symlink_metadata().map_err(make)?.file_type().is_socket() {
        return Err(ControlError::Foreign(name()));
    }
    match UnixStream::connect(path) {
        Ok(living) => Err(ControlError::Taken { path: name(), who: who(&living) }),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
            gone(fs::remove_file(path)).map_err(make)
        }
        Err(e) => Err(make(e)),
    }
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Who listens at the other end.
fn who(living: &UnixStream) -> String {
    match socket_peercred(living) {
        Ok(peer) => format!("process {}", peer.pid.as_raw_nonzero()),
        Err(_) => "a process".to_owned(),
    }
}
