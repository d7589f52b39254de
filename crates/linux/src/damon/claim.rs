//! The file that marks a kdamond as isotherm's, so that a crash leaves nothing behind for ever.
//!
//! The owner locks it while it lives. A later isotherm that finds the file unlocked removes the kdamond that it
//! names, if that is still the same one. sysfs gives each directory an inode number that it does not use again
//! before the next boot.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::availability::{DamonOwner, running};
use super::error::DamonError;
use super::sysfs::{self, Command, Context, Element, Kdamond, SysfsError};
use super::trace;
pub(super) use crate::state::Thread;
use crate::state::{self, boot_id};

const PATH: &str = "run/isotherm/damon.json";
const SIZE: usize = 4096;
/// A process that only reads the file locks it for a moment: the number of attempts, and the pause between
/// them.
const WAITS: u32 = 10;
const WAIT: Duration = Duration::from_millis(10);

/// The kdamond and the trace instance of isotherm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    boot_id: String,
    owner: Thread,
    /// `kdamonds/0` is being created: an empty one is isotherm's
    #[serde(default)]
    pub making: bool,
    /// inode number of the directory `kdamonds/0` that isotherm has created
    pub directory: Option<u64>,
    /// thread of the kdamond
    pub kdamond: Option<Thread>,
    /// instance in tracefs
    pub instance: Option<PathBuf>,
}

/// The state that the file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimState {
    /// a live isotherm, with its pid
    Living(i32),
    /// a kdamond that a killed isotherm has left
    Leftover,
    /// no kdamond of isotherm
    None,
}

/// The locked file. When dropped, it is removed with everything that it names.
#[derive(Debug)]
pub(super) struct ClaimFile {
    file: File,
    root: PathBuf,
    pub mark: Mark,
}

impl ClaimFile {
    /// Locks the file, and removes what a killed isotherm has left.
    pub fn take(root: &Path) -> Result<Self, DamonError> {
        let path = root.join(PATH);
        let failed = |what| move |source| DamonError::State { what, path: root.join(PATH), source };
        if let Some(dir) = path.parent() {
            state::make_dir(dir).map_err(failed("make the directory of"))?;
        }
        let file = lock_or_owner(root, true).map_err(failed("lock"))?;
        let file = file.map_err(|pid| DamonError::Held(DamonOwner::Isotherm(pid)))?;
        take_away_left(root, &file)?;
        let boot_id = boot_id(root).map_err(failed("mark"))?;
        let owner = Thread::own(root);
        let (directory, kdamond, instance) = (None, None, None);
        let mark = Mark { boot_id, owner, making: false, directory, kdamond, instance };
        let claim = ClaimFile { file, root: root.to_owned(), mark };
        claim.save()?;
        Ok(claim)
    }

    /// Writes the current mark.
    pub fn save(&self) -> Result<(), DamonError> {
        let written = state::write(&self.file, SIZE, &self.mark);
        written.map_err(|source| DamonError::State {
            what: "write",
            path: self.root.join(PATH),
            source,
        })
    }

    /// Stops and removes the kdamond, if it is still isotherm's.
    pub fn take_away(&mut self) -> Result<(), DamonError> {
        take_away(&self.root, &self.mark)?;
        (self.mark.making, self.mark.directory) = (false, None);
        Ok(())
    }
}

/// A kdamond that could not be removed stays marked, so that a later isotherm can try again.
impl Drop for ClaimFile {
    fn drop(&mut self) {
        if self.take_away().is_ok() {
            let _ = fs::remove_file(self.root.join(PATH));
        }
    }
}

/// The current state of the file; changes nothing.
pub(super) fn standing(root: &Path) -> ClaimState {
    match lock_or_owner(root, false) {
        Ok(Err(pid)) => ClaimState::Living(pid),
        Ok(Ok(file)) => match read(&file) {
            Some(mark) if is_ours(root, &mark) => ClaimState::Leftover,
            _ => ClaimState::None,
        },
        Err(_) => ClaimState::None,
    }
}

/// Removes the kdamond that a killed isotherm has left; returns the pid of that isotherm, if there was one.
///
/// # Errors
/// If the kernel refuses.
pub fn sweep(root: &Path) -> Result<Option<i32>, DamonError> {
    let Ok(Some(file)) = state::lock(&root.join(PATH), false) else { return Ok(None) };
    let left = take_away_left(root, &file)?;
    let _ = fs::remove_file(root.join(PATH));
    Ok(left)
}

fn take_away_left(root: &Path, file: &File) -> Result<Option<i32>, DamonError> {
    let Some(mark) = read(file) else { return Ok(None) };
    if boot_id(root).ok().as_ref() != Some(&mark.boot_id) {
        return Ok(None);
    }
    if let Some(instance) = &mark.instance {
        trace::remove(instance);
    }
    Ok(take_away(root, &mark)?.then_some(mark.owner.pid))
}

/// Stops and removes the kdamond of `mark`, if it is still the same; returns whether it was.
fn take_away(root: &Path, mark: &Mark) -> Result<bool, DamonError> {
    if !is_ours(root, mark) {
        return Ok(false);
    }
    let all = sysfs::kdamonds(root);
    off(&all.join("0"))?;
    sysfs::write(&all.join(Kdamond::COUNT), &0u64)?;
    Ok(true)
}

/// Stops a kdamond. If it has just stopped by itself, the error of the kernel is ignored.
pub(super) fn off(kdamond: &Path) -> Result<(), SysfsError> {
    if running(kdamond).is_none() {
        return Ok(());
    }
    let stopped = sysfs::write(&kdamond.join("state"), &Command::Off);
    stopped.or_else(|e| if running(kdamond).is_none() { Ok(()) } else { Err(e) })
}

/// Whether the only kdamond is that of `mark`: the same directory, and the same thread if it runs.
pub(super) fn is_ours(root: &Path, mark: &Mark) -> bool {
    let all = sysfs::kdamonds(root);
    let directory = fs::metadata(all.join("0")).ok().map(|m| m.ino());
    let count = |path: PathBuf| sysfs::read::<u64>(&path).ok();
    let alone = count(all.join(Kdamond::COUNT)) == Some(1);
    let is_empty = || count(all.join("0/contexts").join(Context::COUNT)) == Some(0);
    let same_directory = match mark.directory {
        None => mark.making && is_empty(),
        known => known == directory,
    };
    let same_thread = |pid| mark.kdamond.is_none_or(|k| Thread::now(root, pid) == Some(k));
    boot_id(root).ok().as_ref() == Some(&mark.boot_id)
        && alone
        && same_directory
        && running(&all.join("0")).is_none_or(same_thread)
}

/// The locked file, or the pid of the owner of the lock. Processes that only read the file do not count as
/// owner.
fn lock_or_owner(root: &Path, create: bool) -> io::Result<Result<File, i32>> {
    for wait in 0..=WAITS {
        if let Some(file) = state::lock(&root.join(PATH), create)? {
            return Ok(Ok(file));
        }
        let owner = owner(&root.join(PATH));
        let lives = owner.filter(|o| o.lives(root));
        if lives.is_some() || wait == WAITS {
            return Ok(Err(owner.map_or(0, |o| o.pid)));
        }
        sleep(WAIT);
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}

fn read(file: &File) -> Option<Mark> {
    state::read(file, SIZE)
}

/// The thread that has written the file.
fn owner(path: &Path) -> Option<Thread> {
    Some(read(&File::open(path).ok()?)?.owner)
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
