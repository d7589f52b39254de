//! What the manager of services is told: `sd_notify(3)`.

use std::env::var;
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use isotherm_core::Nanos;

/// Tells whoever is named in `NOTIFY_SOCKET`, if anybody is; nobody need listen.
#[derive(Default)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// how often it is to be told that we live
    every: Option<Duration>,
    next: Nanos,
}

impl Notify {
    /// As the environment says.
    pub fn from_env() -> Self {
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(address);
        let to = to.and_then(|to| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, to))
        });
        let ours = var("WATCHDOG_PID").is_ok_and(|pid| pid == std::process::id().to_string())
            || var("WATCHDOG_PID").is_err();
        let every = var("WATCHDOG_USEC").ok().filter(|_| ours).and_then(|usec| half(&usec));
        Notify { to, every, next: Nanos(0) }
    }

    /// Says a line, as `READY=1`.
    pub fn say(&self, line: &str) {
        if let Some((socket, to)) = &self.to {
            let _ = socket.send_to_addr(line.as_bytes(), to);
        }
    }

    /// When it is time to say that we live, if anybody wants to know.
    pub fn by(&self) -> Option<Nanos> {
        self.every.map(|_| self.next)
    }

    /// Says that we live, if it is time.
    pub fn alive(&mut self, now: Nanos) {
        if let Some(every) = self.every.filter(|_| now >= self.next) {
            self.next = now + every;
            self.say("WATCHDOG=1");
        }
    }
}

/// A path, or a name in the abstract space after `@`.
fn address(name: OsString) -> Option<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None => SocketAddr::from_pathname(name).ok(),
    }
}

/// Twice as often as must be.
fn half(usec: &str) -> Option<Duration> {
    let usec: u64 = usec.parse().ok().filter(|&usec| usec > 0)?;
    Some(Duration::from_micros(usec) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_abstract_names() {
        let path = address("/run/x".into()).unwrap();
        assert_eq!(path.as_pathname().unwrap().to_str(), Some("/run/x"));
        assert_eq!(address("@x".into()).unwrap().as_abstract_name(), Some(&b"x"[..]));
        assert!(address("x".repeat(200).into()).is_none());
    }

    #[test]
    fn a_watchdog_is_told_twice_as_often() {
        assert_eq!(half("10000000"), Some(Duration::from_secs(5)));
        assert_eq!((half("0"), half("soon")), (None, None));
    }
}
