//! Files that say what isotherm has changed on this machine, so that a crash leaves nothing for ever.
//!
//! They lie in `/run/isotherm`, and are locked while they are read or written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::proc::stat;
use crate::walker::own_pid;

/// A file may be removed between opening and locking it, so often.
const ATTEMPTS: u32 = 5;

/// A process or thread, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thread {
    pub pid: i32,
    pub start_ticks: u64,
}

impl Thread {
    /// The one with this pid now.
    pub fn now(root: &Path, pid: i32) -> Option<Self> {
        Some(Thread { pid, start_ticks: stat(root, pid).ok()?.start_ticks })
    }

    /// This process.
    pub fn own(root: &Path) -> Self {
        Thread::now(root, own_pid()).unwrap_or(Thread { pid: own_pid(), start_ticks: 0 })
    }

    /// Whether it runs still.
    pub fn lives(&self, root: &Path) -> bool {
        Thread::now(root, self.pid).as_ref() == Some(self)
    }
}

/// The file, locked; `None` if somebody who lives has it.
pub(crate) fn lock(path: &Path, create: bool) -> io::Result<Option<File>> {
    for _ in 0..ATTEMPTS {
        let file =
            OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        // Its owner may have removed it since it was opened: then the lock means nothing.
        let same = |now: fs::Metadata| Ok::<_, io::Error>(now.ino() == file.metadata()?.ino());
        if fs::metadata(path).and_then(same).unwrap_or(false) {
            return Ok(Some(file));
        }
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}

/// What the file of `size` bytes holds, if that is understood.
pub(crate) fn read<T: DeserializeOwned>(file: &File, size: usize) -> Option<T> {
    let mut text = String::new();
    file.take(size as u64).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes the file: filled up with blanks to `size` bytes, it is always written whole, at once and
/// over itself.
pub(crate) fn write(file: &File, size: usize, state: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(state).map_err(io::Error::other)?;
    if text.len() > size {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    text.resize(size, b' ');
    file.write_all_at(&text, 0)
}

/// What may help where the machine cannot be changed, to follow the error.
pub(crate) fn hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::PermissionDenied => ". It takes root",
        io::ErrorKind::ReadOnlyFilesystem => {
            ". sysfs is mounted read-only, as in a container: do it outside"
        }
        _ => "",
    }
}

/// Another one after each boot.
pub(crate) fn boot_id(root: &Path) -> io::Result<String> {
    let text = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id"))?;
    Ok(text.trim().to_owned())
}
