//! The heat of files, for a command that makes no record.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Nanos, Snapshot, Source, Step, TargetId, Thresholds};
use isotherm_linux::sys;

use super::{FileWatch, FilesToWatch, WatchedFiles};
use crate::page_cache::{CacheHeat, FileHeat, FileScope};
use crate::stop::Stop;
use crate::usage::UsageError;
use crate::watch::{DefaultAttrs, Ready, WatchError};

/// Watches the files of a scope as `record` does.
pub struct FileHeatWatch {
    watch: FileWatch,
    begun: Nanos,
    last: Option<Arc<Snapshot>>,
    /// the CPU time of watching that was not reported yet
    cpu: Duration,
}

impl FileHeatWatch {
    /// Begins to watch.
    ///
    /// # Errors
    /// If accesses to files cannot be observed.
    pub fn open(scope: FileScope) -> Result<Self, WatchError> {
        let (by_access, remembers, traces) = (false, false, false);
        let what = FilesToWatch { scope, by_access, remembers, traces };
        let files = WatchedFiles::open(&what, TargetId(0))?;
        let attrs = files.attrs(&DefaultAttrs)?.checked().map_err(UsageError::from)?;
        Ok(FileHeatWatch {
            watch: files.watch(attrs),
            begun: sys::monotonic(),
            last: None,
            cpu: Duration::ZERO,
        })
    }

    /// Watches until this time, or until `stop` is over.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn until(&mut self, end: Nanos, stop: &Stop) -> Result<(), WatchError> {
        let begun = sys::thread_cpu();
        let done = self.steps_until(end, stop);
        self.cpu += sys::thread_cpu().saturating_sub(begun);
        done
    }

    fn steps_until(&mut self, end: Nanos, stop: &Stop) -> Result<(), WatchError> {
        loop {
            let now = sys::monotonic();
            let next = match self.watch.step(now)? {
                Step::Wait(next) => next.min(end),
                Step::Snapshot(snapshot) => {
                    self.last = Some(snapshot);
                    continue;
                }
                _ => return Ok(()),
            };
            if now >= end || stop.is_over() {
                return Ok(());
            }
            stop.sleep_until(next);
        }
    }

    /// The heat of each watched file, as of the last interval.
    #[must_use]
    pub fn heat(&mut self) -> FileHeat {
        let thresholds = Thresholds::default();
        let views = self.last.as_ref().map_or(&[][..], |snapshot| &snapshot.targets);
        let of_target = |id: TargetId| {
            let view = views.get(views.binary_search_by_key(&id, |view| view.id).ok()?)?;
            Some(CacheHeat::from(view.bytes(&thresholds)))
        };
        let files = self.watch.files.files.files.values();
        let heat = files.filter_map(|file| {
            let (id, target) = file.traced()?;
            Some((id, of_target(target)?))
        });
        let watched = self.last.as_ref().map_or(self.begun, |snapshot| snapshot.end);
        FileHeat {
            by_file: heat.collect(),
            watched: watched.since(self.begun),
            cpu: std::mem::take(&mut self.cpu),
        }
    }
}
