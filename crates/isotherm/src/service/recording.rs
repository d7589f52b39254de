//! A record of what is seen while schemes are at work, begun and ended from outside.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use isotherm_core::{Attribution, Attrs, Nanos, Snapshot, TargetId};
use isotherm_record::{Limits, Progress, Summary, TargetFact, Why, WriteError, Writer};
use tracing::warn;

use crate::record::facts;
use crate::session::RecordState;
use crate::words::chain;

/// Nothing is recorded, or something is, or was until it could not be.
#[derive(Default)]
pub struct SideRecord {
    seed: u64,
    /// how it is looked
    look: String,
    file: Option<PathBuf>,
    writer: Option<Writer>,
    /// why there is no writer any more
    ended: Option<String>,
    /// of what has ended
    last: Summary,
    /// who is in it
    told: BTreeSet<TargetId>,
    /// the number of its first snapshot, which is 0 in it
    first: Option<u64>,
}

impl SideRecord {
    /// Nothing yet.
    pub fn off(seed: u64, look: String) -> Self {
        SideRecord { seed, look, ..SideRecord::default() }
    }

    /// Begins a record, of `targets` and those that come.
    pub fn start<'a>(
        &mut self,
        file: &Path,
        limits: Limits,
        attrs: Attrs,
        targets: impl Iterator<Item = &'a TargetFact>,
    ) -> Result<()> {
        if let (Some(before), Some(_)) = (&self.file, &self.writer) {
            bail!("there is a recording already, to {}: end it first", before.display());
        }
        if !file.is_absolute() {
            bail!(
                "{} is not an absolute path: the service has its own working directory",
                file.display()
            );
        }
        let facts = facts(attrs, self.seed, self.look.clone());
        let mut writer = Writer::create(file, &facts, limits)?;
        (self.told, self.first) = (BTreeSet::new(), None);
        for fact in targets {
            let _ = writer.target(fact.clone())?;
            self.told.insert(fact.id);
        }
        (self.file, self.writer, self.ended) = (Some(file.to_owned()), Some(writer), None);
        Ok(())
    }

    /// Tells of who is watched from now on.
    pub fn target(&mut self, fact: &TargetFact) {
        if self.is_on() {
            self.told.insert(fact.id);
            self.write(|writer| writer.target(fact.clone()));
        }
    }

    /// Takes in a snapshot.
    pub fn snapshot(&mut self, s: &Snapshot) {
        if self.is_on() {
            let mut s = s.clone();
            s.seq -= *self.first.get_or_insert(s.seq);
            // The first may tell of some that had ended before.
            s.targets.retain(|view| self.told.contains(&view.id));
            self.write(|writer| writer.snapshot(&s));
        }
    }

    /// Takes in what is told of a target.
    pub fn attribution(&mut self, a: Attribution) {
        if self.told.contains(&a.target) {
            self.write(|writer| writer.attribution(a));
        }
    }

    /// When to write what waits, if anything does.
    pub fn flush_by(&self) -> Option<Nanos> {
        self.writer.as_ref().and_then(Writer::flush_by)
    }

    /// Writes what has waited for long.
    pub fn flush_if_due(&mut self, now: Nanos) {
        if self.flush_by().is_some_and(|by| now >= by) {
            self.write(Writer::flush);
        }
    }

    /// Whether there is a record that goes on.
    pub fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    /// Gives the record its end.
    pub fn stop(&mut self) -> Result<()> {
        let file = self.file.take();
        let finished = self.finish(Why::Stopped, "");
        (self.ended, self.last) = (None, Summary::default());
        match file {
            None => bail!("nothing is recorded"),
            Some(_) => finished.map_or(Ok(()), |e| Err(e.into())),
        }
    }

    /// The same at the end of all: what is wrong with a record is said, and is no failure of ours.
    pub fn end(&mut self) {
        if let Some(e) = self.finish(Why::Stopped, "") {
            warn!("the recording is without its end: {}", chain(&e.into()));
        }
    }

    /// How it goes; none where nothing is recorded.
    pub fn state(&self) -> Option<RecordState> {
        let so_far = self.writer.as_ref().map_or(self.last, Writer::summary);
        let file = self.file.as_ref()?.display().to_string();
        Some(RecordState::new(file, so_far, self.ended.clone()))
    }

    /// A record that cannot be written, or is full, ends; all else goes on.
    fn write(&mut self, write: impl FnOnce(&mut Writer) -> Result<Progress, WriteError>) {
        let Some(writer) = &mut self.writer else { return };
        let ended = match write(writer) {
            Ok(Progress::Going) => return,
            Ok(Progress::Full) => "it has reached its size".to_owned(),
            Err(e) => chain(&e.into()),
        };
        warn!("recording has ended: {ended}");
        let _ = self.finish(Why::Failed, &ended);
        self.ended = Some(ended);
    }

    /// Why that went wrong, if it did.
    fn finish(&mut self, why: Why, note: &str) -> Option<WriteError> {
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
