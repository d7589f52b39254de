//! Actions on the cached pages of the watched files.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{
    Act, Action, AddrRange, Applied, Budget, Failure, OpsError, Support, TargetId, Work,
};
use isotherm_linux::page_cache::{FileAction, FileKey};
use isotherm_linux::sys::{self, Stopwatch, open_regular_itself};
use tracing::debug;

use super::WatchedFiles;

/// `protect` locks at most one in so many cached bytes of the watched files: a control group in which all memory is
/// locked would have none for its processes.
const LOCKED_SHARE: u64 = 2;

impl Act for WatchedFiles {
    fn supports(&self, action: &Action) -> Support {
        FileAction::support(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        let time = works.iter().fold(Duration::ZERO, |sum, w| sum.saturating_add(w.budget.time));
        let mut spent = Duration::ZERO;
        let lockable = self.files.cached_bytes() / LOCKED_SHARE;
        for work in works {
            if !out.is_empty() && spent >= time {
                break;
            }
            work.begin();
            let budget =
                Budget { time: work.budget.time.min(time.saturating_sub(spent)), ..work.budget };
            let done = FileAction::of(work.action)
                .ok_or(Failure::Refused)
                .and_then(|action| self.act(action, work, budget, lockable));
            let done = done.unwrap_or_else(|why| failed(work, why));
            spent += done.took;
            out.push(done);
        }
        Ok(())
    }
}

/// All of it failed.
fn failed(work: &Work<'_>, why: Failure) -> Applied {
    let tried = work.range.len().min(work.budget.bytes);
    Applied { tried, failure: Some(why), ..Applied::default() }
}

impl WatchedFiles {
    fn act(
        &mut self,
        action: FileAction,
        work: &Work<'_>,
        budget: Budget,
        lockable: u64,
    ) -> Result<Applied, Failure> {
        let (key, file) = self.open_target(work.target)?;
        let mut done = action.apply(&file, work.range, budget).map_err(|e| {
            debug!("{} on file {} failed: {e}", work.action.name(), work.target.0);
            Failure::Refused
        })?;
        if action == FileAction::Protect {
            let watch = Stopwatch::start();
            let part =
                AddrRange::new(work.range.start, work.range.start + done.tried + done.passed);
            // Its pages are marked, so they are still evicted later than others.
            if let Err(e) = self.locked.lock((key, &file), part, lockable, sys::monotonic()) {
                debug!("file {} is protected, but not locked: {e}", work.target.0);
            }
            done.took += watch.wall();
        }
        Ok(done)
    }

    /// Opens the file of a target by its name. It is gone if another file, or none, has this name now.
    fn open_target(&mut self, target: TargetId) -> Result<(FileKey, File), Failure> {
        let found = self.files.files.values().find_map(|file| file.is(target));
        let (name, key) = found.ok_or(Failure::Gone)?;
        let file = open_regular_itself(Path::new(name)).map_err(|e| {
            debug!("cannot open {name}: {e}");
            why_not_opened(&e)
        })?;
        let cache = self.reader.page_cache().ok_or(Failure::Refused)?;
        let listing = cache.open_file(&file).map_err(|e| {
            debug!("cannot find {name} in the page cache: {e}");
            Failure::Refused
        })?;
        let is_same = listing.files.iter().any(|f| f.key() == key);
        if is_same { Ok((key, file)) } else { Err(Failure::Gone) }
    }
}

/// A file is gone if it is missing, or if its name is now that of a link, folder, pipe or device. Another process may
/// open other files, or isotherm may later.
fn why_not_opened(e: &io::Error) -> Failure {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
            Failure::Gone
        }
        _ => Failure::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_files_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let why = |path: &Path| why_not_opened(&open_regular_itself(path).unwrap_err());
        assert_eq!(why(&dir.path().join("none")), Failure::Gone);
        assert_eq!(why(&file.join("below")), Failure::Gone);
        let long = dir.path().join("x".repeat(300));
        assert_eq!(why(&long), Failure::Refused);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(why(&link), Failure::Gone, "another file has its name");
    }
}
