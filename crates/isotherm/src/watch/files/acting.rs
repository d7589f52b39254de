//! Actions on the cached pages of the watched files.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Act, Action, Applied, Budget, Failure, OpsError, Support, TargetId, Work};
use isotherm_linux::page_cache::FileAction;
use isotherm_linux::sys::open_regular_itself;
use tracing::debug;

use super::WatchedFiles;

impl Act for WatchedFiles {
    fn supports(&self, action: &Action) -> Support {
        FileAction::support(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        let time = works.iter().fold(Duration::ZERO, |sum, w| sum.saturating_add(w.budget.time));
        let mut spent = Duration::ZERO;
        for work in works {
            if !out.is_empty() && spent >= time {
                break;
            }
            work.begin();
            let budget =
                Budget { time: work.budget.time.min(time.saturating_sub(spent)), ..work.budget };
            let action = FileAction::of(work.action).ok_or(Failure::Refused);
            let opened = action.and_then(|action| Ok((action, self.open_target(work.target)?)));
            let done = opened.and_then(|(action, file)| {
                action.apply(&file, work.range, budget).map_err(|e| {
                    debug!("{} on file {} failed: {e}", work.action.name(), work.target.0);
                    Failure::Refused
                })
            });
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
    /// Opens the file of a target by its name. It is gone if another file, or none, has this name now.
    fn open_target(&mut self, target: TargetId) -> Result<File, Failure> {
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
        if is_same { Ok(file) } else { Err(Failure::Gone) }
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
