//! The metadata of a record.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use isotherm_core::{Attribution, Missing, Nanos, Snapshot, TargetId};
use isotherm_record::{Event, Lost, RecordingHeader, TargetInfo};
use isotherm_report::Gap;

use super::{Input, ReadingError, each_event, open};

/// The facts of a record about itself and its targets.
#[derive(Debug, Default)]
pub struct Head {
    /// the facts of its last recording
    pub facts: Option<RecordingHeader>,
    /// the targets, each with its last name
    pub targets: Vec<TargetInfo>,
    /// the first attribution of each target, by recording
    pub attributions: Vec<BTreeMap<TargetId, Attribution>>,
    /// figures that any of its recordings does not have
    pub missing: Missing,
    /// the parts that cannot be read
    pub gaps: Vec<Gap>,
}

impl Head {
    /// Reads the record at `input`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(input: &Input) -> Result<Head, ReadingError> {
        let mut head = Head::default();
        let mut gaps = Gaps::default();
        // In the next recording of a record, a number may stand for another process.
        let mut places: HashMap<(TargetId, Option<u32>), usize> = HashMap::new();
        let reader = open(input)?;
        // The snapshots around a gap give its time.
        let reader = if input.skip_damaged { reader } else { reader.without_snapshots() };
        each_event::<ReadingError>(reader, |event, lost| {
            match event {
                Event::Header(f) => {
                    head.facts = Some(f.clone());
                    head.missing = head.missing.or(f.missing);
                    head.attributions.push(BTreeMap::new());
                }
                // A second fact means that the target has become another program: the last name
                // counts.
                Event::Target(t) => {
                    let place = *places.entry((t.id, t.pid)).or_insert(head.targets.len());
                    match head.targets.get_mut(place) {
                        Some(known) => known.clone_from(t),
                        None => head.targets.push(t.clone()),
                    }
                }
                Event::Attribution(a) => {
                    let first = head.attributions.last_mut();
                    first.map(|first| first.entry(a.target).or_insert_with(|| a.clone()));
                }
                Event::Snapshot(s) => gaps.snapshot(s, lost),
                Event::End(_) => gaps.end(lost),
                _ => {}
            }
            Ok(())
        })?;
        head.gaps = gaps.found;
        Ok(head)
    }

    /// The header of a record made by editing the one at `input`, whose head this is. It marks `missing` figures as
    /// missing. An unreadable header is presumed from the first snapshot.
    ///
    /// # Errors
    /// If `input` cannot be opened, or has no such snapshot.
    pub fn edited(self, input: &Input, missing: Missing) -> Result<RecordingHeader, ReadingError> {
        let facts = self.facts.map_or_else(|| presumed(input), Ok)?;
        let note = match facts.note.as_str() {
            "" => "edited".to_owned(),
            note => format!("{note}; edited"),
        };
        Ok(RecordingHeader { note, missing, ..facts })
    }
}

/// The facts of a record whose own cannot be read, as far as its first snapshot has them.
fn presumed(input: &Input) -> Result<RecordingHeader, ReadingError> {
    let snapshot = open(input)?.find_map(|event| match event {
        Ok(Event::Snapshot(s)) => Some(s),
        _ => None,
    });
    let s = snapshot.ok_or(ReadingError::NoFacts)?;
    Ok(RecordingHeader::new(env!("CARGO_PKG_VERSION"), s.attrs, s.start))
}

/// Finds gaps.
#[derive(Default)]
struct Gaps {
    found: Vec<Gap>,
    /// begin of the first snapshot, and end of the last one
    span: Option<(Nanos, Nanos)>,
    /// the losses before the first snapshot
    lost: Lost,
}

impl Gaps {
    fn snapshot(&mut self, s: &Snapshot, lost: Lost) {
        let (begin, end) = self.span.unwrap_or((s.start, s.start));
        self.add(end.since(begin)..s.start.since(begin), lost);
        self.span = Some((begin, s.end));
    }

    /// Adds the losses after the last snapshot.
    fn end(&mut self, lost: Lost) {
        let at = self.span.map_or(Duration::ZERO, |(begin, end)| end.since(begin));
        self.add(at..at, lost);
    }

    /// Adds a gap, if the lost bytes held a snapshot.
    fn add(&mut self, time: Range<Duration>, lost: Lost) {
        let snapshots = lost.snapshots - self.lost.snapshots.min(lost.snapshots);
        if lost.places > self.lost.places && (snapshots > 0 || !time.is_empty()) {
            self.found.push(Gap { time, snapshots });
            self.lost = lost;
        }
    }
}
