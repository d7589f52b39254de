//! The listening side of the control socket, and its clients.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_linux::{lock_file, sys};
use rustix::event::PollFd;
use serde::Serialize;
use tracing::warn;

use super::{ControlError, MAX_LINE, Request, Response};
use crate::served::{self, Framing, Served, Wait};
use crate::text_file::ignore_missing;
use crate::words::chain;

/// Maximum number of users whose refused connections are reported in [`REPORT_PAUSE`].
const MAX_REPORTED: usize = 16;
const REPORT_PAUSE: Duration = Duration::from_secs(60 * 60);

/// A socket on which the owner of the service and root may send requests. It never waits for a client.
pub struct Control {
    path: PathBuf,
    served: Served<UnixListener>,
    refusals: Refusals,
}

/// Users whose connections were refused and reported, and when.
#[derive(Debug, Default)]
struct Refusals(BTreeMap<u32, Nanos>);

impl Refusals {
    /// Whether to report a refusal: once an hour for each user, and for few users, because one may have 65,536 uids.
    fn is_news(&mut self, uid: u32, now: Nanos) -> bool {
        self.0.retain(|_, at| now.since(*at) < REPORT_PAUSE);
        let is_news = self.0.len() < MAX_REPORTED && !self.0.contains_key(&uid);
        if is_news {
            self.0.insert(uid, now);
        }
        is_news
    }
}

/// Waits until the given time, or until `control` or one of `others` has something to do. Returns the requests
/// that have arrived at `control`, each with the number of the client to answer.
pub fn wait<'a>(
    control: Option<&'a mut Control>,
    others: impl IntoIterator<Item = &'a mut dyn Wait>,
    until: Nanos,
) -> Vec<(usize, Result<Request, String>)> {
    let mut control = control;
    let mut all: Vec<&mut dyn Wait> = Vec::new();
    all.extend(control.as_deref_mut().map(|control| control as &mut dyn Wait));
    all.extend(others.into_iter().map(|other| other as &mut dyn Wait));
    served::wait(&mut all, until);
    control.map(Control::requests).unwrap_or_default()
}

/// Answers requests that [`wait`] has just returned, by what `done` returns for each of them. If a client has
/// asked the service to end, returns the reason for ending.
pub fn answer<T: Serialize, E: Error + 'static>(
    control: Option<&mut Control>,
    requests: Vec<(usize, Result<Request, String>)>,
    mut done: impl FnMut(Request) -> Result<Response<T>, E>,
) -> Option<String> {
    let control = control?;
    let mut stop = None;
    for (client, request) in requests {
        match request {
            Ok(request) => {
                if matches!(request, Request::Stop) {
                    stop = Some("stopped by a request".to_owned());
                }
                let answer = done(request).unwrap_or_else(|e| Response::refused(chain(&e)));
                control.served.answer(client, &line(&answer), false);
            }
            // After a malformed request, nothing more is read from this client.
            Err(why) => {
                control.served.answer(client, &line(&Response::<()>::refused(why)), true);
            }
        }
    }
    stop
}

impl Control {
    /// Listens at `path`. Creates the directory if it does not exist, and replaces the socket of a service that
    /// no longer runs.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let make = |source| ControlError::Make { path: path.display().to_string(), source };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(make(e)),
            _ => {}
        }
        // The lock makes sure that of two services that start at once, one finds the other. A user who may read
        // the directory may lock it, so a file is locked instead.
        let mut locked = path.as_os_str().to_owned();
        locked.push(".lock");
        let lock = lock_file(locked.as_ref(), true).map_err(make)?;
        let starts = || io::Error::new(ErrorKind::WouldBlock, "another service is starting there");
        let _lock = lock.ok_or_else(|| make(starts()))?;
        let control = Control::listen(path);
        let _ = fs::remove_file(&locked);
        control
    }

    fn listen(path: &Path) -> Result<Self, ControlError> {
        let make = |source| ControlError::Make { path: path.display().to_string(), source };
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(make)?;
        let framing = Framing { end: b"\n", max: MAX_LINE };
        listener.set_nonblocking(true).map_err(make)?;
        let refusal = |why: &str| line(&Response::<()>::refused(why.to_owned()));
        let served = Served::new(listener, framing, refusal);
        let control = Control { path: path.to_owned(), served, refusals: Refusals::default() };
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(make)?;
        Ok(control)
    }

    fn requests(&mut self) -> Vec<(usize, Result<Request, String>)> {
        let read = |line: Result<Vec<u8>, String>| line.and_then(|line| Request::parse(&line));
        self.served.requests().into_iter().map(|(client, line)| (client, read(line))).collect()
    }
}

impl Wait for Control {
    fn settle(&mut self, now: Nanos) -> bool {
        self.served.settle(now)
    }

    fn fds<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        self.served.fds(out);
    }

    fn go_on(&mut self, ready: &[bool]) {
        if self.served.go_on(ready) {
            let refusals = &mut self.refusals;
            self.served.accept(|stream| may_ask(stream, refusals));
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Checks that the peer is root or the owner of this process, and returns the pid of the peer, if it has one here.
/// Otherwise it is reported.
fn may_ask(stream: &UnixStream, refusals: &mut Refusals) -> Result<Option<i32>, String> {
    let own = rustix::process::geteuid().as_raw();
    let peer = sys::peer(stream)
        .map_err(|e| format!("cannot determine the user of this connection: {e}"))?;
    if peer.uid == own || peer.uid == 0 {
        return Ok(peer.pid);
    }
    if refusals.is_news(peer.uid, sys::monotonic()) {
        let process = peer.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        warn!("refused a connection of user {}{process} to the control socket", peer.uid);
        if refusals.0.len() == MAX_REPORTED {
            warn!("refused connections of other users are not reported for up to an hour");
        }
    }
    Err(format!(
        "user {} may not send requests: only user {}, who runs the service, and root may",
        peer.uid, own
    ))
}

fn line<T: Serialize>(answer: &Response<T>) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer).unwrap_or_else(|_| b"{\"ok\":false}".to_vec());
    line.push(b'\n');
    line
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path) -> Result<(), ControlError> {
    let name = || path.display().to_string();
    let make = |source| ControlError::Make { path: name(), source };
    if !path.symlink_metadata().map_err(make)?.file_type().is_socket() {
        return Err(ControlError::Foreign(name()));
    }
    match UnixStream::connect(path) {
        Ok(living) => Err(ControlError::Taken { path: name(), who: describe_peer(&living) }),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
            ignore_missing(fs::remove_file(path)).map_err(make)
        }
        Err(e) => Err(make(e)),
    }
}

/// Describes the process at the other end.
fn describe_peer(living: &UnixStream) -> String {
    let pid = sys::peer(living).ok().and_then(|peer| peer.pid);
    pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    /// Found by an audit: the directory was locked, so any user who may read it could keep a service from
    /// starting.
    #[test]
    fn a_reader_of_the_directory_cannot_block_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = File::open(dir.path()).unwrap();
        flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
        let control = Control::open(&dir.path().join("sock")).unwrap();
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["sock"]);
        drop(control);
    }

    #[test]
    fn refused_users_are_reported_once_an_hour_and_not_too_many_of_them() {
        let mut refusals = Refusals::default();
        let mut is_news = |uid, seconds: u64| refusals.is_news(uid, Nanos(seconds * 1_000_000_000));
        assert!(is_news(1000, 5) && !is_news(1000, 6) && is_news(1001, 7));
        assert!(!is_news(1000, 3604) && is_news(1000, 3605));
        let reported = (0..65_536).filter(|uid| is_news(100_000 + uid, 3606)).count();
        assert_eq!(reported, MAX_REPORTED - 2);
    }
}
