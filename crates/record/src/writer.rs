//! Writes a record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::Schema;
use isotherm_core::{
    Attribution, CacheTrace, CodeMapping, Fault, Nanos, Snapshot, TargetId, TargetView,
};

use crate::ages::{AgeRow, from_ages};
use crate::attributions::from_attributions;
use crate::bad::InvalidField;
use crate::check;
use crate::columns::{SnapshotColumns, bytes_of};
use crate::event::Event;
use crate::faults::{CodeSet, from_code, from_faults};
use crate::files::{AtomicFiles, RecordFiles, Sink};
use crate::frame::{self, FrameKind, MAX_PAYLOAD, MAX_ROWS};
use crate::header::{End, FileEndReason, RecordingHeader, TargetInfo, cut};
use crate::limits::Limits;
use crate::mappings::from_sets;
use crate::message::Encoder;
use crate::outcome::{RecordProgress, RecordingTotals, WriteError};
use crate::packed::pack;
use crate::round::rounded;
use crate::sets::Sets;
use crate::tables::{Schemas, from_ends, from_targets};
use crate::traces::from_traces;

/// Waiting snapshots are written before they are older than this.
const FLUSH: Duration = Duration::from_secs(5);
/// Maximal size of the waiting snapshots, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Maximal number of attributions that wait for snapshots.
const ATTRIBUTIONS: usize = 4096;
/// Maximal number of faults that wait for snapshots.
const MAX_WAITING_FAULTS: usize = 4096;
/// Maximal number of accesses to files that wait for snapshots.
const ACCESSES: usize = MAX_ROWS;
/// Bytes reserved in each file for its end.
const END_ROOM: u64 = 2048;
/// Maximal size of the end's note in bytes, so that the end fits in the reserved space.
const MAX_NOTE_BYTES: usize = 512;

struct Target {
    fact: TargetInfo,
    /// whether it was added since the last flush: snapshots may not contain it yet
    new: bool,
}

/// Writes a record. It writes at the latest when 5 s of snapshots wait, so that a kill loses no more than that.
/// [`Writer::finish`] writes the remaining data and the end.
pub struct Writer<S = RecordFiles> {
    sink: S,
    path: PathBuf,
    file_size: u64,
    rotates: bool,
    encoder: Encoder,
    schemas: Schemas,
    snapshot_schema: Schema,
    targets: BTreeMap<TargetId, Target>,
    sets: Sets,
    columns: SnapshotColumns,
    attributions: Vec<Attribution>,
    faults: Vec<Fault>,
    traces: Vec<CacheTrace>,
    /// the code of each target, which every file repeats
    code: BTreeMap<TargetId, CodeSet>,
    /// ages of the waiting snapshots
    ages: Vec<AgeRow>,
    last_attributed: Option<Nanos>,
    /// start of the first waiting snapshot, start and end of the last one
    waits: Option<(Nanos, Nanos, Nanos)>,
    last_seq: Option<u64>,
    file_len: u64,
    /// whether the file has its end: it is full, or the next file could not be begun
    ended: bool,
    summary: RecordingTotals,
}

impl Writer<RecordFiles> {
    /// Begins a record at `path`. An earlier record there stays FILE until this one contains snapshots, and is
    /// then kept as FILE.old. If this one never contains any, the earlier record stays.
    ///
    /// # Errors
    /// If another kind of file is there, the limits are invalid, or the file cannot be written.
    pub fn create(
        path: &Path,
        facts: &RecordingHeader,
        limits: Limits,
    ) -> Result<Self, WriteError> {
        limits.file_size()?;
        let files = RecordFiles::create(path, limits.rotate.unwrap_or(1))?;
        Writer::to(files, path, facts, limits)
    }

    /// The file that it writes at present: after a rotation another one.
    #[must_use]
    pub fn file(&self) -> &File {
        self.sink.file()
    }
}

impl Writer<AtomicFiles> {
    /// Begins a record that takes its place at `path` when it is finished: an earlier one is then kept as FILE.old.
    /// If it is dropped before, or has no snapshots, nothing changes.
    ///
    /// # Errors
    /// If another kind of file is there, or the file cannot be written.
    pub fn create_whole(path: &Path, facts: &RecordingHeader) -> Result<Self, WriteError> {
        Writer::to(AtomicFiles::create(path)?, path, facts, Limits::default())
    }
}

#[cfg(unix)]
impl Writer<RecordFiles> {
    /// Begins a record on standard output; errors contain `name` as its path.
    ///
    /// # Errors
    /// If the limits are invalid, or it cannot be written.
    pub fn stdout(
        name: &Path,
        facts: &RecordingHeader,
        limits: Limits,
    ) -> Result<Self, WriteError> {
        Writer::to(RecordFiles::stdout(name)?, name, facts, limits)
    }
}

impl<S: Sink> Writer<S> {
    /// Begins a record in `sink`; errors contain `name` as its path.
    ///
    /// # Errors
    /// If the limits are invalid, or the sink cannot be written.
    pub fn to(
        sink: S,
        name: &Path,
        facts: &RecordingHeader,
        limits: Limits,
    ) -> Result<Self, WriteError> {
        let metadata = facts.metadata().map_err(|why| WriteError::refused("a fact", why))?;
        let schemas = Schemas::new()?;
        let fields = schemas.of(FrameKind::Snapshots).fields().clone();
        let mut writer = Writer {
            sink,
            path: name.to_owned(),
            file_size: limits.file_size()?,
            rotates: limits.rotate.is_some(),
            encoder: Encoder::new()?,
            schemas,
            snapshot_schema: Schema::new_with_metadata(fields, metadata),
            targets: BTreeMap::new(),
            sets: Sets::default(),
            columns: SnapshotColumns::default(),
            attributions: Vec::new(),
            faults: Vec::new(),
            traces: Vec::new(),
            code: BTreeMap::new(),
            ages: Vec::new(),
            last_attributed: None,
            waits: None,
            last_seq: None,
            file_len: 0,
            ended: false,
            summary: RecordingTotals::default(),
        };
        let beginning = writer.beginning(0)?;
        writer.begin_file(&beginning)?;
        Ok(writer)
    }

    /// Adds a target. Call it before the first snapshot with the target, and again when the target runs another
    /// program.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn target(&mut self, fact: TargetInfo) -> Result<RecordProgress, WriteError> {
        let message = self.encoder.rows(&from_targets(std::slice::from_ref(&fact))?)?;
        let progress = self.put(FrameKind::Targets, &message)?;
        // A repeated target has a new command: later files contain only that one.
        let new = self.targets.get(&fact.id).is_none_or(|known| known.new);
        self.targets.insert(fact.id, Target { fact, new });
        Ok(progress)
    }

    /// Adds an attribution of a target, to be written before the waiting snapshots. It is omitted if a name is
    /// longer than a record may contain: 64 bytes for a program, 4096 for a cgroup.
    ///
    /// # Errors
    /// If it was read before the previous attribution, or cannot be written.
    pub fn attribution(&mut self, a: Attribution) -> Result<RecordProgress, WriteError> {
        if check::attribution(&a).is_err() {
            return Ok(self.progress());
        }
        if self.last_attributed.is_some_and(|last| a.at < last) {
            let why = InvalidField::new("it comes after a later one");
            return Err(WriteError::refused("the attribution of a target", why));
        }
        self.last_attributed = Some(a.at);
        self.attributions.push(a);
        if self.attributions.len() < ATTRIBUTIONS {
            Ok(RecordProgress::Going)
        } else {
            self.attribute()
        }
    }

    fn attribute(&mut self) -> Result<RecordProgress, WriteError> {
        let mut waiting = std::mem::take(&mut self.attributions);
        // This file may not contain attributions of other targets.
        waiting.retain(|a| self.targets.contains_key(&a.target));
        if waiting.is_empty() {
            return Ok(self.progress());
        }
        let message = self.encoder.rows(&from_attributions(&waiting)?)?;
        self.put(FrameKind::Attribution, &message)
    }

    /// Adds a fault of a target, to be written before the waiting snapshots. It is omitted if no kernel reports
    /// such a fault.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn fault(&mut self, f: Fault) -> Result<RecordProgress, WriteError> {
        if check::fault(&f).is_ok() {
            self.faults.push(f);
        }
        if self.faults.len() < MAX_WAITING_FAULTS {
            Ok(self.progress())
        } else {
            self.write_faults()
        }
    }

    /// Adds the files that a target may execute, for the faults after this call.
    ///
    /// # Errors
    /// If they overlap, or cannot be written.
    pub fn code(
        &mut self,
        target: TargetId,
        code: Arc<Vec<CodeMapping>>,
    ) -> Result<RecordProgress, WriteError> {
        check::code(&code).map_err(|why| WriteError::refused("the code of a target", why))?;
        // The waiting faults are of the earlier code.
        if self.write_faults()? == RecordProgress::Full {
            return Ok(RecordProgress::Full);
        }
        let set = CodeSet { target, code };
        let message = self.encoder.rows(&from_code(std::slice::from_ref(&set))?)?;
        let progress = self.put(FrameKind::Code, &message)?;
        self.code.insert(target, set);
        Ok(progress)
    }

    fn write_faults(&mut self) -> Result<RecordProgress, WriteError> {
        let mut waiting = std::mem::take(&mut self.faults);
        waiting.retain(|f| self.targets.contains_key(&f.target));
        if waiting.is_empty() {
            return Ok(self.progress());
        }
        let message = self.encoder.rows(&from_faults(&waiting)?)?;
        self.put(FrameKind::Faults, &message)
    }

    /// Adds accesses to files, to be written before the waiting snapshots. Those to unknown targets are left out.
    ///
    /// # Errors
    /// If there can be no such accesses, or they cannot be written.
    pub fn trace(&mut self, mut t: CacheTrace) -> Result<RecordProgress, WriteError> {
        check::trace(&t).map_err(|why| WriteError::refused("a trace", why))?;
        t.accesses.retain(|a| self.targets.contains_key(&a.target));
        t.pages.retain(|(id, _)| self.targets.contains_key(id));
        self.traces.push(t);
        let waiting = self.traces.iter().map(|t| 1 + t.pages.len() + t.accesses.len());
        if waiting.sum::<usize>() < ACCESSES { Ok(self.progress()) } else { self.write_traces() }
    }

    fn write_traces(&mut self) -> Result<RecordProgress, WriteError> {
        let waiting = std::mem::take(&mut self.traces);
        if waiting.is_empty() {
            return Ok(self.progress());
        }
        let message = self.encoder.rows(&from_traces(&waiting)?)?;
        self.put(FrameKind::Traces, &message)
    }

    /// Writes the pending data other than snapshots.
    fn write_samples(&mut self) -> Result<RecordProgress, WriteError> {
        match self.write_faults()? {
            RecordProgress::Going => self.write_traces(),
            full @ RecordProgress::Full => Ok(full),
        }
    }

    /// Adds a snapshot, with its rates [`rounded`], and writes the waiting ones if that is due.
    ///
    /// # Errors
    /// If no source may deliver such a snapshot, or it cannot be written.
    pub fn snapshot(&mut self, s: &Snapshot) -> Result<RecordProgress, WriteError> {
        self.check(s).map_err(|why| WriteError::refused("a snapshot", why))?;
        self.sets.leave(s);
        let mut numbers = Vec::with_capacity(s.targets.len());
        for target in &s.targets {
            match self.set_of(target)? {
                Some(number) => numbers.push(number),
                None => return Ok(RecordProgress::Full),
            }
        }
        let pushed = self.columns.push(&rounded(s), &numbers);
        pushed.map_err(|why| WriteError::refused("a snapshot", why))?;
        let ages = s.targets.iter().filter_map(|t| Some(((s.end, t.id), t.ages.clone()?)));
        self.ages.extend(ages);
        self.last_seq = Some(s.seq);
        let first = self.waits.map_or(s.start, |(first, ..)| first);
        self.waits = Some((first, s.start, s.end));
        if self.is_due() { self.flush() } else { Ok(RecordProgress::Going) }
    }

    /// Adds a part of another recording: its targets, their attributions, and its snapshots, numbered from 0.
    ///
    /// # Errors
    /// As those of [`Writer::target`], [`Writer::attribution`] and [`Writer::snapshot`].
    pub fn part(&mut self, events: Vec<Event>) -> Result<RecordProgress, WriteError> {
        let mut seq = 0;
        for event in events {
            let progress = match event {
                Event::Target(fact) => self.target(fact)?,
                Event::Attribution(a) => self.attribution(a)?,
                Event::Snapshot(s) => {
                    seq += 1;
                    self.snapshot(&Snapshot { seq: seq - 1, ..Snapshot::clone(&s) })?
                }
                _ => RecordProgress::Going,
            };
            if progress == RecordProgress::Full {
                break;
            }
        }
        Ok(self.progress())
    }

    /// The latest time for a call of [`Writer::flush`] if no further snapshot comes; none if no snapshot waits.
    #[must_use]
    pub fn flush_by(&self) -> Option<Nanos> {
        self.waits.map(|(first, ..)| first + FLUSH)
    }

    /// Writes the waiting snapshots.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn flush(&mut self) -> Result<RecordProgress, WriteError> {
        if self.ended {
            return Ok(RecordProgress::Full);
        }
        if self.columns.is_empty() {
            return self.write_samples();
        }
        if self.attribute()? == RecordProgress::Full
            || self.write_samples()? == RecordProgress::Full
        {
            return Ok(RecordProgress::Full);
        }
        let ages = std::mem::take(&mut self.ages);
        if !ages.is_empty() {
            let message = self.encoder.rows(&from_ages(&ages)?)?;
            if self.put(FrameKind::Ages, &message)? == RecordProgress::Full {
                return Ok(RecordProgress::Full);
            }
        }
        let snapshots = self.columns.len() as u64;
        let message = self.encoder.rows(&self.columns.take()?)?;
        self.waits = None;
        let progress = self.put(FrameKind::Snapshots, &message)?;
        if progress == RecordProgress::Going {
            self.summary.snapshots += snapshots;
            self.sink.settle().map_err(|source| self.io(source))?;
        }
        self.sets.forget_retired();
        self.targets.retain(|id, t| std::mem::take(&mut t.new) || self.sets.has(*id));
        self.code.retain(|id, _| self.targets.contains_key(id));
        Ok(progress)
    }

    /// Writes the waiting snapshots and the end, unless the record already has its end.
    ///
    /// # Errors
    /// If they cannot be written. The record then gets an end with the error, if there is space.
    pub fn finish(mut self, why: FileEndReason, note: &str) -> Result<RecordingTotals, WriteError> {
        match self.flush() {
            Ok(RecordProgress::Going) => self.end(why, note)?,
            Ok(RecordProgress::Full) => {}
            Err(e) => {
                let _ = self.end(FileEndReason::Failed, &e.to_string());
                return Err(e);
            }
        }
        if self.summary.snapshots > 0 {
            self.sink.finish().map_err(|source| self.io(source))?;
        }
        Ok(self.summary())
    }

    /// The totals so far.
    #[must_use]
    pub fn summary(&self) -> RecordingTotals {
        RecordingTotals { in_place: self.sink.is_settled(), ..self.summary }
    }

    /// Whether the record is at its final place: false while an earlier record stays there because this one has
    /// no snapshots.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.sink.is_settled()
    }

    fn progress(&self) -> RecordProgress {
        if self.ended { RecordProgress::Full } else { RecordProgress::Going }
    }

    fn check(&self, s: &Snapshot) -> Result<(), InvalidField> {
        check::snapshot(s)?;
        if self.last_seq.is_some_and(|last| s.seq <= last) {
            return Err(InvalidField::new("it comes after a later one"));
        }
        if bytes_of(s) > MAX_PAYLOAD / 2 {
            return Err(InvalidField::new("it has more regions than a frame can hold"));
        }
        Ok(())
    }

    /// The number of the set of mappings that `target` uses; writes the set if it is new. None if the record is
    /// full.
    fn set_of(&mut self, target: &TargetView) -> Result<Option<u64>, WriteError> {
        if let Some(number) = self.sets.number(target) {
            return Ok(Some(number));
        }
        check::mappings(&target.mappings).map_err(|why| WriteError::refused("mappings", why))?;
        let set = self.sets.new_set(target);
        let message = self.encoder.rows(&from_sets(std::slice::from_ref(&set))?)?;
        if self.put(FrameKind::Mappings, &message)? == RecordProgress::Full {
            return Ok(None);
        }
        let number = set.number;
        self.sets.add(set);
        Ok(Some(number))
    }

    /// Whether the waiting snapshots would be too old or too large after one more snapshot of the same length
    /// as the last one.
    fn is_due(&self) -> bool {
        let most = usize::try_from(self.file_size / 2).unwrap_or(BATCH_BYTES).min(BATCH_BYTES);
        let old = self
            .waits
            .is_some_and(|(first, start, end)| end.since(first) + end.since(start) > FLUSH);
        old || self.columns.bytes() >= most
    }

    /// Writes a frame to this file. If there is no space, writes it to the next file, or, without rotation, the
    /// record is full.
    fn put(&mut self, kind: FrameKind, message: &[u8]) -> Result<RecordProgress, WriteError> {
        if self.ended {
            return Ok(RecordProgress::Full);
        }
        let frame = seal(kind, message)?;
        let len = frame.len() as u64;
        if self.file_len.saturating_add(len + END_ROOM) > self.file_size {
            if !self.rotates {
                self.end(FileEndReason::MaxSize, "")?;
                return Ok(RecordProgress::Full);
            }
            let beginning = self.beginning(len)?;
            self.end(FileEndReason::Rotated, "")?;
            self.sink.rotate().map_err(|source| self.io(source))?;
            self.begin_file(&beginning)?;
        }
        self.append(&frame)?;
        Ok(RecordProgress::Going)
    }

    /// The frames with which every file begins, so that it can be read alone. Fails if they do not leave `more`
    /// bytes.
    fn beginning(&mut self, more: u64) -> Result<Vec<Vec<u8>>, WriteError> {
        let mut messages = Vec::new();
        for kind in FrameKind::ALL {
            let schema = match kind {
                FrameKind::Snapshots => &self.snapshot_schema,
                other => self.schemas.of(other).as_ref(),
            };
            messages.push((kind, self.encoder.schema(schema)?));
        }
        let targets: Vec<_> = self.targets.values().map(|t| t.fact.clone()).collect();
        let (whole, rest) = targets.as_chunks::<MAX_ROWS>();
        for targets in whole.iter().map(|part| part.as_slice()).chain([rest]) {
            messages.push((FrameKind::Targets, self.encoder.rows(&from_targets(targets)?)?));
        }
        for set in self.sets.all() {
            messages.push((FrameKind::Mappings, self.encoder.rows(&from_sets(&[set])?)?));
        }
        for set in self.code.values() {
            let rows = from_code(std::slice::from_ref(set))?;
            messages.push((FrameKind::Code, self.encoder.rows(&rows)?));
        }
        let frames: Vec<_> = messages.iter().map(|(k, m)| seal(*k, m)).collect::<Result<_, _>>()?;
        let needed = frames.iter().map(|f| f.len() as u64).sum::<u64>() + more + END_ROOM;
        if needed > self.file_size {
            let (path, allowed) = (self.path.clone(), self.file_size);
            return Err(WriteError::Small { path, needed, allowed });
        }
        Ok(frames)
    }

    fn begin_file(&mut self, beginning: &[Vec<u8>]) -> Result<(), WriteError> {
        (self.file_len, self.ended) = (0, false);
        self.summary.files += 1;
        beginning.iter().try_for_each(|frame| self.append(frame))
    }

    fn end(&mut self, why: FileEndReason, note: &str) -> Result<(), WriteError> {
        let note = cut(note, MAX_NOTE_BYTES).to_owned();
        let end = End { why, note, snapshots: self.summary.snapshots, files: self.summary.files };
        let message = self.encoder.rows(&from_ends(&[end])?)?;
        self.append(&seal(FrameKind::End, &message)?)?;
        self.ended = true;
        Ok(())
    }

    fn append(&mut self, frame: &[u8]) -> Result<(), WriteError> {
        self.sink.append(frame).map_err(|source| self.io(source))?;
        self.file_len += frame.len() as u64;
        self.summary.bytes += frame.len() as u64;
        self.summary.frames += 1;
        Ok(())
    }

    fn io(&self, source: io::Error) -> WriteError {
        WriteError::Io { path: self.path.clone(), source }
    }
}

fn seal(kind: FrameKind, message: &[u8]) -> Result<Vec<u8>, WriteError> {
    let sealed = pack(message).and_then(|packed| frame::seal(kind, &packed));
    sealed.map_err(|why| WriteError::refused("a frame", why))
}
