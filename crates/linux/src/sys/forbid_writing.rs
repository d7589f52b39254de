//! Landlock: threads that read input of strangers neither write files nor connect to other machines.
//!
//! Threads that watch cannot have it: a thread under Landlock may not look at a process that is not.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, path_beneath_rules,
};

/// The rights that this version of isotherm knows.
const KNOWN: ABI = ABI::V5;

/// Forbids this thread, and threads that it starts later, to write, create or remove files except below `scratch`, to
/// execute files, and to bind or connect TCP sockets. They read files as before, and keep what is open. A kernel that
/// knows only some of these rights forbids only those. Returns whether it forbids anything.
///
/// # Errors
/// If the kernel has Landlock and refuses.
pub fn forbid_writing(scratch: &Path) -> io::Result<bool> {
    let restrict = || -> Result<_, RulesetError> {
        let rights = AccessFs::from_write(KNOWN) | AccessFs::Execute;
        Ruleset::default()
            .handle_access(rights)?
            .handle_access(AccessNet::from_all(KNOWN))?
            .create()?
            .add_rules(path_beneath_rules([scratch], AccessFs::from_write(KNOWN)))?
            .restrict_self()
    };
    let status = restrict().map_err(io::Error::other)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_writes_only_to_its_scratch_folder() {
        let (scratch, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let file = other.path().join("file");
        fs::write(&file, "before").unwrap();
        let denied =
            |done: io::Result<()>| done.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
        let restricted = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if !forbid_writing(scratch.path()).unwrap() {
                    return false;
                }
                assert!(denied(fs::write(&file, "after")));
                assert!(denied(fs::remove_file(&file)));
                assert!(denied(fs::create_dir(other.path().join("new"))));
                assert_eq!(fs::read_to_string(&file).unwrap(), "before");
                fs::write(scratch.path().join("file"), "x").unwrap();
                tempfile::tempfile_in(scratch.path()).unwrap();
                let net = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
                if since_6_7(&net) {
                    assert!(denied(TcpStream::connect(address).map(drop)));
                }
                true
            });
            thread.join().unwrap()
        });
        let required = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
        assert!(restricted || !required, "this test requires a kernel with Landlock");
        if !restricted {
            eprintln!("skipped: the kernel has no Landlock");
        }
        // Other threads are free.
        fs::write(&file, "after").unwrap();
        TcpStream::connect(address).unwrap();
    }

    /// Before Linux 6.7, Landlock does not know sockets.
    fn since_6_7(release: &str) -> bool {
        let mut parts =
            release.split(['.', '-']).map(|part| part.trim().parse::<u32>().unwrap_or(0));
        (parts.next(), parts.next()) >= (Some(6), Some(7))
    }
}
