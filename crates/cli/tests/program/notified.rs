//! Notifications to the service manager.

use std::fs;
use std::os::unix::net::UnixDatagram;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::load::Load;
use crate::reclaim::Service;
use crate::run::{TIMEOUT, needs_root};

/// The socket of the manager.
pub struct Notified {
    socket: UnixDatagram,
    path: String,
    _dir: TempDir,
}

impl Notified {
    pub fn listen() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Notified { socket, path: path.to_str().unwrap().to_owned(), _dir: dir }
    }

    /// The environment variable for the service.
    pub fn place(&self) -> (&str, &str) {
        ("NOTIFY_SOCKET", &self.path)
    }

    pub fn next(&self) -> String {
        let mut text = [0; 128];
        let n = self.socket.recv(&mut text).unwrap();
        // Assignments are lines. The last one may lack its end.
        String::from_utf8(text[..n].to_vec()).unwrap().trim_end().to_owned()
    }
}

#[test]
fn the_manager_of_services_is_reported() {
    needs_root!();
    let load = Load::start(16, 4);
    let told = Notified::listen();
    let env = [told.place(), ("WATCHDOG_USEC", "400000")];
    let options = ["--pid", &load.pid().to_string(), "--dry-run"];
    let mut service = Service::start_in(TempDir::new().unwrap(), &options, &env);
    assert_eq!(told.next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(told.next(), "WATCHDOG=1");
    }
    assert_eq!(service.end(Signal::TERM), Some(0), "{}", service.err());
    let last = std::iter::from_fn(|| Some(told.next())).find(|text| text != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
}

#[test]
fn reloading_is_reported_to_the_manager() {
    needs_root!();
    let load = Load::start(16, 4);
    let dir = TempDir::new().unwrap();
    let text = format!("pid = {}\ndry-run = true\n", load.pid());
    fs::write(dir.path().join("r.toml"), text).unwrap();
    let told = Notified::listen();
    let mut service = Service::start_in(dir, &["--config", "r.toml"], &[told.place()]);
    assert_eq!(told.next(), "READY=1");
    kill_process(Pid::from_child(&service.child), Signal::HUP).unwrap();
    let reloading = told.next();
    let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(usec.parse::<u64>().unwrap() > 0, "{reloading}");
    assert_eq!(told.next(), "READY=1");
    assert_eq!(service.end(Signal::TERM), Some(0), "{}", service.err());
}
