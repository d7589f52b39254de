//! Files that note isotherm's changes of this machine, so that a crash leaves none for ever.
//!
//! They are in `/run/isotherm`, and are locked while they are read or written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::proc::stat;
use crate::walker::own_pid;

/// Number of attempts, because a file may be removed between opening and locking it.
const ATTEMPTS: u32 = 5;

/// Identifies a process or thread for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// its pid
    pub pid: i32,
    /// its start time, in clock ticks since boot
    pub start_ticks: u64,
}

impl Thread {
    /// The process or thread that has this pid now.
    #[must_use]
    pub fn now(root: &Path, pid: i32) -> Option<Self> {
        Some(Thread { pid, start_ticks: stat(root, pid).ok()?.start_ticks })
    }

    /// This process.
    pub(crate) fn own(root: &Path) -> Self {
        Thread::now(root, own_pid()).unwrap_or(Thread { pid: own_pid(), start_ticks: 0 })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn lives(&self, root: &Path) -> bool {
        Thread::now(root, self.pid).as_ref() == Some(self)
    }

    /// The same, except if it has ended and its parent has not waited for it.
    #[must_use]
    pub fn runs(&self, root: &Path) -> bool {
        stat(root, self.pid).is_ok_and(|s| !s.has_ended && s.start_ticks == self.start_ticks)
    }
}

/// Creates a directory for such files, into which only its owner may look.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens and locks the file, without following a link. `None` if a living process has locked it. A new file may be
/// opened by its owner only, because a user who may open a file may also lock it.
///
/// # Errors
/// If it cannot be opened or locked.
pub fn lock(path: &Path, create: bool) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    for _ in 0..ATTEMPTS {
        let file = options.open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        // The owner may have removed the file since it was opened. Then the lock has no meaning.
        let same = |now: fs::Metadata| Ok::<_, io::Error>(now.ino() == file.metadata()?.ino());
        if fs::metadata(path).and_then(same).unwrap_or(false) {
            return Ok(Some(file));
        }
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}

/// The content of a file of `size` bytes, if it can be parsed.
pub(crate) fn read<T: DeserializeOwned>(file: &File, size: usize) -> Option<T> {
    let mut text = String::new();
    file.take(size as u64).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes the file. It is padded with blanks to `size` bytes, so that one write always replaces the whole
/// content.
pub(crate) fn write(file: &File, size: usize, state: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(state).map_err(io::Error::other)?;
    if text.len() > size {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    text.resize(size, b' ');
    file.write_all_at(&text, 0)
}

/// A remedy if the machine cannot be changed, to follow the error.
pub(crate) fn hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::PermissionDenied => ". This requires root",
        io::ErrorKind::ReadOnlyFilesystem => {
            ". sysfs is mounted read-only, as in a container: run isotherm outside of the container"
        }
        _ => "",
    }
}

/// The id of this boot; each boot has another one.
///
/// # Errors
/// If `/proc` does not have it.
pub fn boot_id(root: &Path) -> io::Result<String> {
    let text = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Found by an audit: they had the modes of the umask, and any user could keep them locked.
    #[test]
    fn others_may_not_lock_a_note() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("run/isotherm");
        make_dir(&dir).unwrap();
        let note = dir.join("swap.json");
        let _locked = lock(&note, true).unwrap().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&note)), (0o700, 0o600));
    }

    /// Found by a review: the weights of a killed run stayed while its parent did not wait for it.
    #[test]
    fn a_process_that_nobody_waits_for_has_ended() {
        let root = Path::new("/");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Thread::now(root, child.id().cast_signed()).unwrap();
        assert!(process.runs(root));
        child.kill().unwrap();
        while !stat(root, process.pid).unwrap().has_ended {
            std::thread::yield_now();
        }
        assert!(process.lives(root) && !process.runs(root));
        child.wait().unwrap();
    }

    #[test]
    fn a_note_is_no_link() {
        let root = tempfile::tempdir().unwrap();
        let (link, chosen) = (root.path().join("link"), root.path().join("chosen"));
        symlink(&chosen, &link).unwrap();
        assert!(lock(&link, true).is_err());
        assert!(!chosen.exists());
    }
}
