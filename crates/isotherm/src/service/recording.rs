//! A record of snapshots while schemes are running, started and ended over the control socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::{Attribution, Attrs, CodeMapping, Fault, Nanos, Snapshot, TargetId};
use isotherm_record::{
    FileEndReason, Limits, RecordProgress, RecordingTotals, TargetInfo, WriteError, Writer,
};
use tracing::warn;

use super::ServiceError;
use crate::record::{facts, or_finish};
use crate::session::RecordState;
use crate::stacks::StackNews;
use crate::words::chain;

/// The state: no record, a record in progress, or a record that has ended because of an error.
#[derive(Default)]
pub struct SideRecord {
    seed: u64,
    /// the way to look, as the record describes it
    look: String,
    file: Option<PathBuf>,
    writer: Option<Writer>,
    /// why there is no longer a writer
    ended: Option<String>,
    /// summary of a record that has ended
    last: RecordingTotals,
    /// the targets in the record
    announced: BTreeSet<TargetId>,
    /// sequence number of its first snapshot, which becomes 0 in the record
    first: Option<u64>,
}

impl SideRecord {
    /// The initial state: no record.
    pub fn off(seed: u64, look: String) -> Self {
        SideRecord { seed, look, ..SideRecord::default() }
    }

    /// Starts a record of `targets` and of targets that are attached later. If their stacks are sampled, `code` holds
    /// the files that they execute, and `pages` the sampled pages with the stacks of their faults.
    pub fn start<'a>(
        &mut self,
        file: &Path,
        limits: Limits,
        attrs: Attrs,
        targets: impl Iterator<Item = &'a TargetInfo>,
        code: BTreeMap<TargetId, Arc<Vec<CodeMapping>>>,
        pages: Vec<Fault>,
    ) -> Result<(), ServiceError> {
        if let (Some(before), Some(_)) = (&self.file, &self.writer) {
            return Err(ServiceError::Recording(before.clone()));
        }
        if !file.is_absolute() {
            return Err(ServiceError::Relative(file.to_owned()));
        }
        let facts = facts(attrs, self.seed, self.look.clone());
        let mut writer = Writer::create(file, &facts, limits)?;
        (self.announced, self.first) = (BTreeSet::new(), None);
        let begin = || -> Result<(), WriteError> {
            for fact in targets {
                let _ = writer.target(fact.clone())?;
                self.announced.insert(fact.id);
            }
            for (target, code) in code {
                let _ = writer.code(target, code)?;
            }
            for page in pages {
                let _ = writer.fault(page)?;
            }
            Ok(())
        };
        let ((), writer) = or_finish(begin(), writer)?;
        (self.file, self.writer, self.ended) = (Some(file.to_owned()), Some(writer), None);
        Ok(())
    }

    /// Records a new target, or the new name of a target.
    pub fn target(&mut self, fact: &TargetInfo) {
        if self.is_on() {
            self.announced.insert(fact.id);
            self.write(|writer| writer.target(fact.clone()));
        }
    }

    /// Records a snapshot.
    pub fn snapshot(&mut self, s: &Snapshot) {
        if self.is_on() {
            let mut s = s.clone();
            s.seq -= *self.first.get_or_insert(s.seq);
            // The first snapshot may contain targets that ended before the record started.
            s.targets.retain(|view| self.announced.contains(&view.id));
            self.write(|writer| writer.snapshot(&s));
        }
    }

    /// Records the attribution of a target.
    pub fn attribution(&mut self, a: Attribution) {
        if self.announced.contains(&a.target) {
            self.write(|writer| writer.attribution(a));
        }
    }

    /// Records a sampled page fault, or the code of a target.
    pub fn stacks(&mut self, news: StackNews) {
        match news {
            StackNews::Fault(f) if self.announced.contains(&f.target) => {
                self.write(|writer| writer.fault(f));
            }
            StackNews::Code(target, code) if self.announced.contains(&target) => {
                self.write(|writer| writer.code(target, code));
            }
            StackNews::Fault(_) | StackNews::Code(..) => {}
        }
    }

    /// When buffered data is to be written; `None` if there is none.
    pub fn flush_by(&self) -> Option<Nanos> {
        self.writer.as_ref().and_then(Writer::flush_by)
    }

    /// Writes buffered data if it is due.
    pub fn flush_if_due(&mut self, now: Nanos) {
        if self.flush_by().is_some_and(|by| now >= by) {
            self.write(Writer::flush);
        }
    }

    /// Whether a record is in progress.
    pub fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    /// The file that is written.
    pub fn file(&self) -> Option<&File> {
        self.writer.as_ref().map(Writer::file)
    }

    /// Ends the record.
    pub fn stop(&mut self) -> Result<(), ServiceError> {
        let file = self.file.take();
        let finished = self.finish(FileEndReason::Stopped, "");
        (self.ended, self.last) = (None, RecordingTotals::default());
        match file {
            None => Err(ServiceError::NoRecording),
            Some(_) => finished.map_or(Ok(()), |e| Err(e.into())),
        }
    }

    /// Ends the record at the end of the service. An error is printed, and is not an error of the service.
    pub fn end(&mut self) {
        if let Some(e) = self.finish(FileEndReason::Stopped, "") {
            warn!("cannot write the end of the recording: {}", chain(&e));
        }
    }

    /// The state of the record; `None` if there is none.
    pub fn state(&self) -> Option<RecordState> {
        let so_far = self.writer.as_ref().map_or(self.last, Writer::summary);
        let file = self.file.as_ref()?.display().to_string();
        Some(RecordState::new(file, so_far, self.ended.clone()))
    }

    /// Writes to the record. If that fails or the record is full, the record ends, and the service continues.
    fn write(&mut self, write: impl FnOnce(&mut Writer) -> Result<RecordProgress, WriteError>) {
        let Some(writer) = &mut self.writer else { return };
        let ended = match write(writer) {
            Ok(RecordProgress::Going) => return,
            Ok(RecordProgress::Full) => "it has reached its maximum size".to_owned(),
            Err(e) => chain(&e),
        };
        warn!("recording has ended: {ended}");
        let _ = self.finish(FileEndReason::Failed, &ended);
        self.ended = Some(ended);
    }

    /// Ends the record with this reason; returns the error if that fails.
    fn finish(&mut self, why: FileEndReason, note: &str) -> Option<WriteError> {
        let writer = self.writer.take()?;
        self.last = writer.summary();
        match writer.finish(why, note) {
            Ok(summary) => {
                self.last = summary;
                None
            }
            Err(e) => Some(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::AddrRange;
    use isotherm_record::{Event, Reader};

    use super::*;

    /// Found by a review: it had no end, as if its recording had been killed.
    #[test]
    fn a_record_that_cannot_start_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rec");
        let fact = TargetInfo { id: TargetId(1), pid: Some(1), command: "sh".to_owned() };
        let part = |start| CodeMapping {
            range: AddrRange::new(start, start + 2),
            offset: 0,
            path: "/bin/sh".into(),
            build_id: "".into(),
        };
        let overlapping = BTreeMap::from([(fact.id, Arc::new(vec![part(0), part(1)]))]);
        let (limits, attrs) = (Limits::default(), Attrs::default());
        let mut recording = SideRecord::off(0, String::new());
        let begun =
            recording.start(&file, limits, attrs, [&fact].into_iter(), overlapping, Vec::new());
        assert!(matches!(begun, Err(ServiceError::Write(_))), "{begun:?}");
        assert!(!recording.is_on());
        let last = Reader::open(&file).unwrap().last().unwrap().unwrap();
        assert!(matches!(last, Event::End(end) if end.why == FileEndReason::Failed));
    }
}
