//! Actions on the cached pages of the watched files.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Act, Action, Applied, Budget, Failure, OpsError, Support, TargetId, Work};
use isotherm_linux::page_cache::FileAction;
use rustix::fs::{Mode, OFlags, open};
use tracing::debug;

use super::Files;

impl Act for Files {
    fn supports(&self, action: &Action) -> Support {
        FileAction::support(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        let time = works.iter().fold(Duration::ZERO, |sum, w| sum.saturating_add(w.budget.time));
        let mut spent = Duration::ZERO;
        for work in works {
            let action = FileAction::of(work.action).ok_or_else(|| {
                OpsError::Failed(format!("{} is no action on files", work.action.name()))
            })?;
            if !out.is_empty() && spent >= time {
                break;
            }
            work.begin();
            let budget =
                Budget { time: work.budget.time.min(time.saturating_sub(spent)), ..work.budget };
            let done = self.open_target(work.target)?.map_or_else(
                || Ok(failed(work, Failure::Gone)),
                |file| action.apply(&file, work.range, budget),
            );
            let done = done.unwrap_or_else(|e| {
                debug!("{} on file {} failed: {e}", work.action.name(), work.target.0);
                failed(work, Failure::Refused)
            });
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

impl Files {
    /// Opens the file of a target by its name; `None` if another file, or none, has this name now.
    fn open_target(&mut self, target: TargetId) -> Result<Option<File>, OpsError> {
        let found = self.files.files.values().find_map(|file| file.is(target));
        let (name, key) = found.ok_or(OpsError::NoTarget(target))?;
        let Ok(file) = open_quietly(Path::new(name)) else { return Ok(None) };
        let Some(cache) = self.reader.page_cache() else { return Ok(None) };
        let listing = cache.open_file(&file).map_err(super::failed)?;
        Ok(listing.files.iter().any(|f| f.key() == key).then_some(file))
    }
}

/// Opens a file, without changing the time of its last access where that is allowed.
fn open_quietly(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open(path, flags | OFlags::NOATIME, Mode::empty());
    Ok(opened.or_else(|_| open(path, flags, Mode::empty()))?.into())
}
