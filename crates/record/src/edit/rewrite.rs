//! Writes records, edited, one after the other as one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    Attribution, CacheAccess, CacheTrace, Fault, FaultKind, Nanos, Snapshot, TargetId,
};

use super::{Edit, Editor};
use crate::event::{Event, Lost, ReadError};
use crate::files::Sink;
use crate::header::{FileEndReason, RecordingHeader, TargetInfo};
use crate::outcome::{RecordingTotals, WriteError};
use crate::reader::Reader;
use crate::writer::Writer;

/// Clocks that differ by less are the same: the wall clock of a record is rounded to milliseconds.
const SAME_CLOCK_NS: i128 = 1_000_000_000;

/// Maximal memory of faults and attributions before the first snapshot. A service that begins to record has written up to
/// 524,288 pages there, which have 700 MB if each has a stack of its own with 127 functions.
const MAX_EARLY_BYTES: usize = 1 << 30;

/// Why records cannot be edited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// a record cannot be read
    #[error(transparent)]
    Read(#[from] ReadError),
    /// the new record cannot be written
    #[error(transparent)]
    Write(#[from] WriteError),
    /// two recordings have a common time
    #[error(
        "a recording began {overlap:.3?} before the end of the one before it: give records in order of time; records \
         of the same time cannot be merged"
    )]
    Overlap {
        /// common time of the two
        overlap: Duration,
    },
    /// the snapshots of one interval need too much memory
    #[error(
        "the snapshots of an interval of --aggr would need too much memory: joined, they still have {} MiB; choose a \
         shorter interval, or select a part with --target or --addr",
        joined >> 20
    )]
    TooMuch {
        /// bytes that they have after they were joined
        joined: usize,
    },
    /// faults and attributions need too much memory
    #[error(
        "the faults and attributions before the first snapshot need more than {} MiB; no record that isotherm writes has so \
         many",
        MAX_EARLY_BYTES >> 20
    )]
    Early,
    /// nothing would be left
    #[error("no snapshot that can be read lies in the selected time and addresses")]
    Empty,
}

/// The missing parts of a record.
#[derive(Debug, Default)]
pub struct Lacked {
    /// set if the record has no end
    pub torn: Option<ReadError>,
    /// data that were skipped
    pub lost: Lost,
}

/// Writes records, edited, one after the other as one. Targets of the same pid and command are one target.
pub struct Rewriter<S: Sink> {
    writer: Writer<S>,
    /// the facts of the first record, which are those of the new one
    facts: RecordingHeader,
    /// each with its number as its place
    targets: Vec<TargetInfo>,
    /// the targets of each pid and command
    named: HashMap<Name, BTreeSet<TargetId>>,
    seq: u64,
    last_end: Nanos,
    last_attributed: Nanos,
    /// whether a region was written, or none was to be
    has_memory: bool,
}

/// The pid and the command of a target.
type Name = (Option<u32>, String);

fn name(fact: &TargetInfo) -> Name {
    (fact.pid, fact.command.clone())
}

/// A record that is being read.
struct Source {
    editor: Editor,
    ids: HashMap<TargetId, TargetId>,
    /// the numbers in `ids`
    taken: HashSet<TargetId>,
    /// for each name, the highest number that it has taken: all its numbers up to this one are taken
    last_taken: HashMap<Name, TargetId>,
    /// faults and attributions before its first snapshot, which alone says when it began
    early: Vec<Event>,
    /// number of bytes that these may still have
    early_left: usize,
    /// the last attribution of each target before the selected time, which says to what it belongs then
    before: BTreeMap<TargetId, Attribution>,
    /// what to add to its times, in ns
    shift: i128,
    /// whether it has had a snapshot
    begun: bool,
    /// whether another tool made the recording
    imported: bool,
}

impl Source {
    fn new(edit: &Edit) -> Self {
        Source {
            editor: Editor::new(edit.clone()),
            ids: HashMap::new(),
            taken: HashSet::new(),
            last_taken: HashMap::new(),
            early: Vec::new(),
            early_left: MAX_EARLY_BYTES,
            before: BTreeMap::new(),
            shift: 0,
            begun: false,
            imported: false,
        }
    }
}

impl<S: Sink> Rewriter<S> {
    /// Writes to `writer`, which was created with `facts`.
    pub fn new(writer: Writer<S>, facts: RecordingHeader) -> Self {
        Rewriter {
            writer,
            facts,
            targets: Vec::new(),
            named: HashMap::new(),
            seq: 0,
            last_end: Nanos(0),
            last_attributed: Nanos(0),
            has_memory: false,
        }
    }

    /// Adds a record. Its end may be missing if `repair` is set; a reader that skips damage repairs the rest. Returns
    /// what was missing.
    ///
    /// # Errors
    /// If it cannot be read, begins before the record before it ends, or cannot be written.
    pub fn add(
        &mut self,
        mut reader: Reader,
        edit: &Edit,
        repair: bool,
    ) -> Result<Lacked, EditError> {
        let (mut source, mut torn) = (Source::new(edit), None);
        self.has_memory |= edit.addr.is_none();
        for event in reader.by_ref() {
            match event {
                Ok(Event::Header(facts)) => {
                    let before = std::mem::replace(&mut source, Source::new(edit));
                    self.rest(before)?;
                    source.shift = shift(&self.facts, &facts);
                    source.imported = facts.missing.residency;
                }
                Ok(Event::Target(fact)) => self.target(&mut source, &fact)?,
                Ok(e @ (Event::Attribution(_) | Event::Fault(_))) if !source.editor.has_begun() => {
                    source.keep_early(e)?;
                }
                Ok(Event::Attribution(a)) => self.attribution(&mut source, a)?,
                Ok(Event::Fault(f)) => self.fault(&source, f)?,
                Ok(Event::Trace(t)) => {
                    if !source.editor.is_done(t.since) {
                        self.trace(&source, &t)?;
                    }
                }
                Ok(Event::Code { target, code }) => {
                    if let Some(&target) = source.ids.get(&target) {
                        let _ = self.writer.code(target, code)?;
                    }
                }
                Ok(Event::Snapshot(s)) if source.editor.is_done(s.start) => {}
                Ok(Event::Snapshot(s)) => {
                    let s = source.editor.push(&s)?;
                    for early in std::mem::take(&mut source.early) {
                        match early {
                            Event::Attribution(a) => self.attribution(&mut source, a)?,
                            Event::Fault(f) => self.fault(&source, f)?,
                            _ => {}
                        }
                    }
                    if let Some(s) = s {
                        self.snapshot(&mut source, s)?;
                    }
                }
                Ok(_) => {}
                Err(e @ ReadError::Torn { .. }) if repair => torn = Some(e),
                Err(e) => return Err(e.into()),
            }
        }
        self.rest(source)?;
        Ok(Lacked { torn, lost: reader.lost() })
    }

    /// Writes the end of the record.
    ///
    /// # Errors
    /// If it has no snapshot, or no memory at the selected addresses, or cannot be written.
    pub fn finish(self) -> Result<RecordingTotals, EditError> {
        if self.seq == 0 || !self.has_memory {
            return Err(EditError::Empty);
        }
        Ok(self.writer.finish(FileEndReason::Played, "edited")?)
    }

    fn target(&mut self, source: &mut Source, fact: &TargetInfo) -> Result<(), EditError> {
        if !source.editor.keeps(fact.id) {
            return Ok(());
        }
        // A target that has become another program keeps its number.
        let known = source.ids.get(&fact.id).copied();
        let id = known.or_else(|| self.same(source, fact));
        let next = TargetId(u32::try_from(self.targets.len()).unwrap_or(u32::MAX));
        let id = id.unwrap_or(next);
        source.take(id, fact);
        let fact = TargetInfo { id, ..fact.clone() };
        match self.targets.get_mut(id.0 as usize) {
            Some(t) if *t == fact => return Ok(()),
            Some(t) => {
                let before = std::mem::replace(t, fact.clone());
                if let Some(ids) = self.named.get_mut(&name(&before)) {
                    ids.remove(&id);
                }
            }
            None => self.targets.push(fact.clone()),
        }
        self.named.entry(name(&fact)).or_default().insert(id);
        let _ = self.writer.target(fact)?;
        Ok(())
    }

    /// The target of an earlier recording with this pid and command. Two targets of one recording are never the same:
    /// one snapshot may have both.
    fn same(&self, source: &Source, fact: &TargetInfo) -> Option<TargetId> {
        let name = name(fact);
        let from = source.last_taken.get(&name).copied().unwrap_or(TargetId(0));
        self.named.get(&name)?.range(from..).copied().find(|id| !source.taken.contains(id))
    }

    fn attribution(&mut self, source: &mut Source, a: Attribution) -> Result<(), EditError> {
        let Some(&target) = source.ids.get(&a.target) else { return Ok(()) };
        let (done, kept) = (source.editor.is_done(a.at), source.editor.keeps_time(a.at));
        let a = Attribution { target, at: source.moved(a.at), ..a };
        if done {
            return Ok(());
        }
        if !kept {
            source.before.insert(target, a);
            return Ok(());
        }
        if let Some(before) = source.before.remove(&target) {
            self.attribute_before(source, before)?;
        }
        self.attribute(a)
    }

    /// Writes an attribution before the selected time as one at its begin.
    fn attribute_before(&mut self, source: &Source, a: Attribution) -> Result<(), EditError> {
        let begin = source.editor.begin().map_or(a.at, |begin| source.moved(begin));
        self.attribute(Attribution { at: begin.max(self.last_attributed), ..a })
    }

    fn attribute(&mut self, a: Attribution) -> Result<(), EditError> {
        if a.at >= self.last_attributed {
            self.last_attributed = a.at;
            let _ = self.writer.attribution(a)?;
        }
        Ok(())
    }

    /// A fault before the selected time made memory that the later snapshots still have.
    fn fault(&mut self, source: &Source, f: Fault) -> Result<(), EditError> {
        let Some(&target) = source.ids.get(&f.target) else { return Ok(()) };
        let clipped = source.editor.clipped(&f.range);
        let range = match (f.kind, clipped) {
            // A release names only the first address of its allocation, which may lie before the selected ones.
            (FaultKind::Released, _) => f.range,
            (_, None) => return Ok(()),
            // All memory of a target ends when it becomes another program. The begin of an allocation is its name.
            (FaultKind::Freed | FaultKind::Allocated, _) => f.range,
            (_, Some(clipped)) => clipped,
        };
        if !source.editor.is_done(f.at) {
            let _ = self.writer.fault(Fault { target, at: source.moved(f.at), range, ..f })?;
        }
        Ok(())
    }

    /// Accesses to the kept targets. Those before the selected time are kept too, as they show what was cached, but do
    /// not count as reads.
    fn trace(&mut self, source: &Source, t: &CacheTrace) -> Result<(), EditError> {
        let kept = |id: &TargetId| source.ids.get(id).copied();
        let counts = source.editor.keeps_time(t.until) || source.editor.is_done(t.until);
        let access = |a: &CacheAccess| Some(CacheAccess { target: kept(&a.target)?, ..*a });
        let trace = CacheTrace {
            since: source.moved(t.since),
            until: source.moved(t.until),
            pages: t
                .pages
                .iter()
                .filter(|_| counts)
                .filter_map(|(id, n)| Some((kept(id)?, *n)))
                .collect(),
            accesses: t.accesses.iter().filter_map(access).collect(),
            ..*t
        };
        let _ = self.writer.trace(trace)?;
        Ok(())
    }

    fn snapshot(&mut self, source: &mut Source, mut s: Snapshot) -> Result<(), EditError> {
        (s.start, s.end) = (source.moved(s.start), source.moved(s.end));
        if !source.begun && s.start < self.last_end {
            // The begin of an import's first snapshot is presumed if the file has only its end.
            if !source.imported || s.end <= self.last_end {
                return Err(EditError::Overlap { overlap: self.last_end.since(s.start) });
            }
            s.start = self.last_end;
        }
        for a in std::mem::take(&mut source.before).into_values() {
            self.attribute_before(source, a)?;
        }
        self.has_memory |= s.nr_regions() > 0;
        source.begun = true;
        s.seq = self.seq;
        for view in &mut s.targets {
            view.id = source.ids.get(&view.id).copied().unwrap_or(view.id);
            if let Some(ages) = view.ages.as_mut().filter(|_| source.shift != 0).map(Arc::make_mut)
            {
                (ages.since, ages.begun) = (source.moved(ages.since), source.moved(ages.begun));
            }
        }
        s.targets.sort_by_key(|view| view.id);
        self.seq += 1;
        self.last_end = s.end;
        let _ = self.writer.snapshot(&s)?;
        Ok(())
    }

    fn rest(&mut self, mut source: Source) -> Result<(), EditError> {
        match source.editor.rest() {
            Some(s) => self.snapshot(&mut source, s),
            None => Ok(()),
        }
    }
}

impl Source {
    /// Gives the target of `fact` the number `id` in the new record.
    fn take(&mut self, id: TargetId, fact: &TargetInfo) {
        if self.ids.insert(fact.id, id).is_none() {
            self.taken.insert(id);
            self.last_taken.insert(name(fact), id);
        }
    }

    /// Keeps a fault or an attribution until the first snapshot.
    fn keep_early(&mut self, event: Event) -> Result<(), EditError> {
        let frames = match &event {
            Event::Fault(f) => size_of_val(&*f.frames),
            _ => 0,
        };
        let left = self.early_left.checked_sub(size_of::<Event>() + frames);
        self.early_left = left.ok_or(EditError::Early)?;
        self.early.push(event);
        Ok(())
    }

    fn moved(&self, at: Nanos) -> Nanos {
        Nanos(u64::try_from(i128::from(at.0) + self.shift).unwrap_or(0))
    }
}

/// What to add to the times of a record, so that they are on the clock of the first one: the machine's monotonic clock
/// starts again when it boots, and the wall clock shows how long that took.
fn shift(first: &RecordingHeader, facts: &RecordingHeader) -> i128 {
    if first.started_unix_ms == 0 || facts.started_unix_ms == 0 {
        return 0;
    }
    let ns =
        |f: &RecordingHeader| i128::from(f.started_unix_ms) * 1_000_000 - i128::from(f.started.0);
    let shift = ns(facts) - ns(first);
    if shift.abs() < SAME_CLOCK_NS { 0 } else { shift }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by a review: they were kept without a limit.
    #[test]
    fn too_many_events_before_the_first_snapshot_are_refused() {
        let mut source = Source::new(&Edit::default());
        let of = |at| Attribution {
            at: Nanos(at),
            target: TargetId(0),
            comm: Arc::from(""),
            cgroup: Arc::from(""),
            swapped: 0,
            major_faults: 0,
        };
        source.early_left = 3 * size_of::<Event>();
        let kept = (0..4).filter(|at| source.keep_early(Event::Attribution(of(*at))).is_ok());
        assert_eq!(kept.count(), 3);
    }
}
