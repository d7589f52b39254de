//! The process at the other end of a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The process that has connected a Unix socket, at the time when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// its pid; `None` if it is outside of this process's pid namespace
    pub pid: Option<i32>,
    /// its effective user
    pub uid: u32,
}

/// The process at the other end of a Unix socket.
///
/// # Errors
/// If it is another kind of socket.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&found) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `found`, and the length to `len`; both live until the call
    // returns.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: Some(found.pid).filter(|pid| *pid > 0), uid: found.uid })
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    const INSIDE: &str = "ISOTHERM_TEST_PID_NAMESPACE";

    /// Found by an audit: it was read as pid 0 into a type that has no zero.
    #[test]
    fn a_peer_outside_of_the_pid_namespace_has_no_pid() {
        if std::env::var_os(INSIDE).is_some() {
            return assert_eq!(peer(io::stdin()).unwrap().pid, None);
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        let own = peer(&ours).unwrap();
        assert_eq!(own.pid, Some(std::process::id().cast_signed()));
        assert_eq!(own.uid, rustix::process::geteuid().as_raw());
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "namespaces take root");
            return;
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork"]).arg(std::env::current_exe().unwrap());
        unshare
            .args(["--exact", "sys::peer::tests::a_peer_outside_of_the_pid_namespace_has_no_pid"]);
        let done = unshare.env(INSIDE, "1").stdin(OwnedFd::from(theirs)).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }
}
