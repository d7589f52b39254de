//! The state after the frames of a record that were read so far.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_schema::{ArrowError, Schema};
use isotherm_core::{CodeMapping, Nanos, Snapshot, TargetId};

use crate::ages::AgeRows;
use crate::attributions::to_attributions;
use crate::bad::{InvalidField, ensure};
use crate::event::Event;
use crate::faults::{to_code, to_faults};
use crate::frame::{Frame, FrameKind, MAX_ROWS};
use crate::header::{End, RecordingHeader};
use crate::mappings::{MappingSet, to_sets};
use crate::message::{Message, decode, holds_rows};
use crate::rows::SnapshotRows;
use crate::tables::{Schemas, to_end, to_targets};
use crate::traces::to_traces;
use crate::versions;

/// Maximal number of mappings in memory: a limit for untrusted input, far above that of real machines.
const MAX_MAPPINGS: usize = 4 << 20;
/// The same for sets of mappings, which may be empty.
const MAX_SETS: usize = 1 << 20;

/// The state after the frames that were read so far.
pub(crate) struct StreamState {
    schemas: Schemas,
    facts: Option<Arc<RecordingHeader>>,
    sets: BTreeMap<u64, MappingSet>,
    /// number of mappings in these sets
    nr_mappings: usize,
    /// number of the newest set that a snapshot has used
    newest_set: Option<u64>,
    last_seq: Option<u64>,
    /// the latest time at which data of a target were read
    last_attribution: Option<Nanos>,
    /// ages of the snapshots that come next
    ages: AgeRows,
    /// the code of each target, to report each change once
    code: HashMap<TargetId, Arc<Vec<CodeMapping>>>,
    missing: u64,
    /// snapshots after the last one, according to the end
    missing_at_end: u64,
    /// whether a frame was skipped before the first snapshot
    begins_damaged: bool,
    /// missing snapshots before the first one, unless older files were deleted
    missing_at_begin: u64,
    /// ends so far in this recording
    ends: u64,
    rows: Option<SnapshotRows>,
    ended: bool,
    /// whether snapshots and mappings are skipped
    passes: bool,
    /// snapshots that end earlier and have no ages are skipped
    skip_until: Nanos,
    /// whether the file has had a schema of snapshots: only rows follow
    in_rows: bool,
    /// presumed end of the last frame of snapshots, and the presumed length of the next ones
    reached: (Nanos, Duration),
    /// frames of snapshots that were read, and those that were skipped since the last one
    read_and_skipped: (u64, u64),
    /// whether frames were skipped, so that the next snapshot has any number
    jumps: bool,
    /// Of this many frames of snapshots, one is read.
    one_in: u64,
    /// frames of snapshots so far
    frames: u64,
}

/// What a reader must know to continue at a later frame.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    facts: Option<Arc<RecordingHeader>>,
    sets: BTreeMap<u64, MappingSet>,
    nr_mappings: usize,
    newest_set: Option<u64>,
    last_seq: Option<u64>,
}

impl Known {
    /// The memory that it occupies in addition to `before`, with which it may share sets, in bytes.
    pub(crate) fn bytes_beyond(&self, before: Option<&Known>) -> usize {
        let is_new = |set: &&MappingSet| {
            let earlier = before.and_then(|before| before.sets.get(&set.number));
            earlier.is_none_or(|earlier| !Arc::ptr_eq(&earlier.mappings, &set.mappings))
        };
        let new = self.sets.values().filter(is_new).map(MappingSet::bytes);
        // The nodes of the map are at least half full.
        2 * self.sets.len() * size_of::<(u64, MappingSet)>() + new.sum::<usize>()
    }
}

impl StreamState {
    pub(crate) fn new() -> Result<Self, ArrowError> {
        Ok(StreamState {
            schemas: Schemas::new()?,
            facts: None,
            sets: BTreeMap::new(),
            nr_mappings: 0,
            newest_set: None,
            last_seq: None,
            last_attribution: None,
            ages: AgeRows::default(),
            code: HashMap::new(),
            missing: 0,
            missing_at_end: 0,
            begins_damaged: false,
            missing_at_begin: 0,
            ends: 0,
            rows: None,
            ended: false,
            passes: false,
            skip_until: Nanos(0),
            in_rows: false,
            reached: (Nanos(0), Duration::ZERO),
            read_and_skipped: (0, 0),
            jumps: false,
            one_in: 1,
            frames: 0,
        })
    }

    /// The state of a reader that continues after the frames by which `known` was known.
    pub(crate) fn after(known: Known) -> Result<Self, ArrowError> {
        Ok(StreamState {
            facts: known.facts,
            sets: known.sets,
            nr_mappings: known.nr_mappings,
            newest_set: known.newest_set,
            last_seq: known.last_seq,
            in_rows: true,
            ..StreamState::new()?
        })
    }

    /// What a reader must know to continue with the next frame. None while snapshots of the current one remain,
    /// or before the first one.
    pub(crate) fn known(&self) -> Option<Known> {
        let between = self.in_rows
            && self.ages.is_empty()
            && self.rows.as_ref().is_none_or(|rows| rows.peek().is_none());
        between.then(|| Known {
            facts: self.facts.clone(),
            sets: self.sets.clone(),
            nr_mappings: self.nr_mappings,
            newest_set: self.newest_set,
            last_seq: self.last_seq,
        })
    }

    /// Reads only one of `one_in` frames of snapshots from now on.
    pub(crate) fn sample(&mut self, one_in: u64) {
        self.one_in = one_in.max(1);
    }

    /// Skips rows of snapshots and mappings from now on.
    pub(crate) fn pass_snapshots(&mut self) {
        self.passes = true;
    }

    /// Skips snapshots that end before `until` and have no ages.
    pub(crate) fn skip_until(&mut self, until: Nanos) {
        self.skip_until = until;
    }

    /// Whether the last event was an end.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// The number of missing snapshots, according to the numbers of the others and to the end.
    pub(crate) fn missing(&self) -> u64 {
        self.missing + self.missing_at_begin + self.missing_at_end
    }

    /// Notes that another file begins.
    pub(crate) fn next_file(&mut self) {
        self.in_rows = false;
    }

    /// Notes that a frame was skipped.
    pub(crate) fn skipped(&mut self) {
        self.in_rows = false;
        self.begins_damaged |= self.last_seq.is_none();
    }

    /// Processes a frame. [`StreamState::snapshot`] returns its snapshots; all other events are appended to `events`.
    pub(crate) fn take(
        &mut self,
        frame: Frame,
        events: &mut VecDeque<Event>,
    ) -> Result<(), InvalidField> {
        let (version, kind) = (frame.version, frame.kind);
        let payload = Buffer::from_vec(frame.payload);
        if self.passes && is_of_memory(kind) && holds_rows(&payload)? {
            return Ok(());
        }
        match decode(payload, self.schemas.of_version(version, kind))? {
            Message::Schema(schema) if kind == FrameKind::Snapshots => self.begin(&schema, events),
            Message::Schema(_) => Ok(()),
            Message::Rows(rows) if kind == FrameKind::Snapshots => {
                self.rows(kind, &versions::upgraded(version, rows)?, events)
            }
            Message::Rows(rows) => self.rows(kind, &rows, events),
        }
    }

    fn begin(&mut self, schema: &Schema, events: &mut VecDeque<Event>) -> Result<(), InvalidField> {
        let facts = RecordingHeader::from_metadata(&schema.metadata)?;
        (self.ended, self.in_rows) = (false, true);
        if self.facts.as_deref() != Some(&facts) {
            (self.newest_set, self.last_seq, self.last_attribution) = (None, None, None);
            self.missing = self.missing();
            (self.missing_at_begin, self.missing_at_end, self.ends) = (0, 0, 0);
            self.sets.clear();
            self.nr_mappings = 0;
            self.code.clear();
            self.facts = Some(Arc::new(facts.clone()));
            events.push_back(Event::Header(facts));
        }
        Ok(())
    }

    fn rows(
        &mut self,
        kind: FrameKind,
        rows: &RecordBatch,
        events: &mut VecDeque<Event>,
    ) -> Result<(), InvalidField> {
        ensure(!self.ended, "it comes after the end")?;
        ensure(
            kind == FrameKind::Snapshots || rows.num_rows() <= MAX_ROWS,
            "it has more rows than a frame may",
        )?;
        match kind {
            FrameKind::Snapshots => {
                let rows = SnapshotRows::of(rows)?;
                // A frame that was written early is short, and the next ones are longer again.
                if let Some((end, length)) = rows.span() {
                    self.reached = (end, length.max(self.reached.1 / 2));
                }
                self.read_and_skipped = (self.read_and_skipped.0 + 1, 0);
                self.rows = Some(rows);
            }
            FrameKind::Mappings => {
                for set in to_sets(rows)? {
                    events.extend(self.add(set)?);
                }
            }
            FrameKind::Attribution => {
                let attributions = to_attributions(rows)?;
                let times =
                    self.last_attribution.into_iter().chain(attributions.iter().map(|a| a.at));
                ensure(times.is_sorted(), "an attribution of a target comes after a later one")?;
                self.last_attribution = attributions.last().map(|a| a.at).or(self.last_attribution);
                events.extend(attributions.into_iter().map(Event::Attribution));
            }
            FrameKind::Ages => self.ages = AgeRows::of(rows)?,
            FrameKind::Faults => events.extend(to_faults(rows)?.into_iter().map(Event::Fault)),
            FrameKind::Traces => {
                events.extend(to_traces(rows)?.into_iter().map(|t| Event::Trace(Arc::new(t))));
            }
            FrameKind::Code => {
                // Each file of a record repeats the code of its targets.
                let known = &mut self.code;
                let sets = to_code(rows)?.into_iter();
                let new =
                    sets.filter(|s| known.insert(s.target, s.code.clone()) != Some(s.code.clone()));
                events.extend(new.map(|s| Event::Code { target: s.target, code: s.code }));
            }
            FrameKind::Targets => events.extend(to_targets(rows)?.into_iter().map(Event::Target)),
            FrameKind::End => {
                let end = to_end(rows)?;
                self.note_end(&end);
                events.push_back(Event::End(end));
            }
        }
        Ok(())
    }

    /// Notes the end of a file, and how many snapshots are missing.
    fn note_end(&mut self, end: &End) {
        self.ends += 1;
        if end.files > self.ends {
            // Older files were deleted, so that their snapshots are not missing.
            self.missing_at_begin = 0;
        }
        self.missing_at_end = match self.last_seq {
            Some(last) => end.snapshots.saturating_sub(last + 1),
            None if self.begins_damaged && end.files <= 1 => end.snapshots,
            None => 0,
        };
        if self.jumps {
            self.missing_at_end = 0;
        }
        (self.ended, self.in_rows) = (true, false);
    }

    /// Adds a set. Each file of a record repeats the sets that it needs; only a new set is an event.
    fn add(&mut self, set: MappingSet) -> Result<Option<Event>, InvalidField> {
        if let Some(known) = self.sets.get(&set.number) {
            ensure(*known == set, "it changes a set of mappings that an earlier frame defined")?;
            return Ok(None);
        }
        let nr_mappings = self.nr_mappings + set.mappings.len();
        ensure(nr_mappings <= MAX_MAPPINGS, "there are too many mappings")?;
        ensure(self.sets.len() < MAX_SETS, "there are too many sets of mappings")?;
        self.nr_mappings = nr_mappings;
        let event = Event::Mappings { target: set.target, mappings: set.mappings.clone() };
        self.sets.insert(set.number, set);
        Ok(Some(event))
    }

    /// The next snapshot of the current frame.
    pub(crate) fn snapshot(&mut self) -> Option<Result<Arc<Snapshot>, InvalidField>> {
        if let Err(why) = self.pass_early() {
            return Some(Err(why));
        }
        let sets = &self.sets;
        let find = |number: u64, target| {
            let set = sets.get(&number).filter(|set| set.target == target);
            set.map(|set| set.mappings.clone())
        };
        let row = self.rows.as_mut()?.next(&find);
        if row.is_none() {
            self.rows = None;
        }
        Some(row?.and_then(|(mut snapshot, used)| {
            self.follow(snapshot.seq)?;
            let end = snapshot.end;
            for target in &mut snapshot.targets {
                target.ages = self.ages.take(end, target.id)?.map(Arc::new);
            }
            self.forget_sets(&used);
            Ok(Arc::new(snapshot))
        }))
    }

    /// Whether the next frame, which is of this kind, need not be read.
    pub(crate) fn leaves_out(&mut self, kind: FrameKind) -> bool {
        // To read a frame only to learn that it has rows takes a decompressor of its own.
        if self.passes {
            return self.in_rows && is_of_memory(kind);
        }
        let are_snapshots = kind == FrameKind::Snapshots && self.in_rows;
        are_snapshots && (self.is_left_out() || self.is_early())
    }

    /// Whether the next frame of snapshots is one that a sample leaves out.
    fn is_left_out(&mut self) -> bool {
        let left_out = !self.frames.is_multiple_of(self.one_in);
        self.frames += 1;
        if left_out {
            self.ages = AgeRows::default();
            self.jumps = true;
        }
        left_out
    }

    /// Whether the next frame of snapshots can be skipped unread: no ages have come for it, and it is presumed to end
    /// early. The length of frames is learnt first: as many in a row are skipped as were read. Example: a frame of 0.4 s
    /// is followed by frames of 5 s. Skipping the next minute at once would skip 12 minutes.
    fn is_early(&mut self) -> bool {
        let ((end, length), (read, skipped)) = (self.reached, self.read_and_skipped);
        let is_early =
            self.ages.is_empty() && skipped < read && end + length * 5 / 4 < self.skip_until;
        if is_early {
            self.read_and_skipped.1 += 1;
            self.reached.0 = end + length;
            self.jumps = true;
        }
        is_early
    }

    /// Skips the next snapshots that the caller does not need.
    fn pass_early(&mut self) -> Result<(), InvalidField> {
        while let Some((seq, end)) = self.rows.as_ref().and_then(SnapshotRows::peek) {
            if end >= self.skip_until || self.ages.has(end) {
                break;
            }
            self.rows.iter_mut().for_each(SnapshotRows::skip);
            self.follow(seq)?;
        }
        Ok(())
    }

    fn follow(&mut self, seq: u64) -> Result<(), InvalidField> {
        let next = match self.last_seq {
            Some(last) => {
                ensure(last < seq, "a snapshot comes after a later one")?;
                if std::mem::take(&mut self.jumps) { seq } else { last + 1 }
            }
            None => {
                // The numbers start with zero.
                self.missing_at_begin = if self.begins_damaged { seq } else { 0 };
                seq
            }
        };
        self.missing += seq - next;
        self.missing_at_end = 0;
        self.last_seq = Some(seq);
        Ok(())
    }

    /// Forgets the earlier sets that this snapshot does not use; the writer does the same.
    fn forget_sets(&mut self, used: &[u64]) {
        self.newest_set = self.newest_set.max(used.iter().copied().max());
        let Some(newest) = self.newest_set.filter(|_| self.sets.len() > used.len()) else { return };
        let used: HashSet<u64> = used.iter().copied().collect();
        let earlier = self.sets.range(..=newest).map(|(number, _)| *number);
        let unused: Vec<u64> = earlier.filter(|number| !used.contains(number)).collect();
        for set in unused.iter().filter_map(|number| self.sets.remove(number)) {
            self.nr_mappings -= set.mappings.len();
        }
    }
}

/// Whether rows of this kind describe memory and its use, and not the recording and its targets.
fn is_of_memory(kind: FrameKind) -> bool {
    !matches!(kind, FrameKind::Targets | FrameKind::Attribution | FrameKind::End)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ages::from_ages;
    use crate::header::TargetInfo;
    use crate::tables::from_targets;

    /// Found by a review: a few KiB of packed rows became gigabytes of events.
    #[test]
    fn a_frame_with_too_many_rows_is_damage() {
        let fact = TargetInfo { id: TargetId(0), pid: None, command: String::new() };
        for (n, sound) in [(MAX_ROWS, true), (MAX_ROWS + 1, false)] {
            let rows = from_targets(&vec![fact.clone(); n]).unwrap();
            let (mut state, mut events) = (StreamState::new().unwrap(), VecDeque::new());
            let read = state.rows(FrameKind::Targets, &rows, &mut events);
            assert_eq!((read.is_ok(), events.len()), (sound, if sound { n } else { 0 }));
            let ages = ((Nanos(0), TargetId(0)), Arc::default());
            let rows = from_ages(&vec![ages; n]).unwrap();
            assert_eq!(state.rows(FrameKind::Ages, &rows, &mut events).is_ok(), sound);
        }
    }

    /// Found by a review: each new set looked at all others, and empty sets had no limit.
    #[test]
    fn empty_sets_have_a_limit() {
        let mut state = StreamState::new().unwrap();
        let mappings = Arc::default();
        let set =
            |number| MappingSet { number, target: TargetId(0), mappings: Arc::clone(&mappings) };
        for number in 0..MAX_SETS as u64 {
            assert!(state.add(set(number)).is_ok());
        }
        assert!(state.add(set(MAX_SETS as u64)).is_err());
        state.forget_sets(&[MAX_SETS as u64 - 1]);
        assert_eq!((state.sets.len(), state.nr_mappings), (1, 0));
    }
}
