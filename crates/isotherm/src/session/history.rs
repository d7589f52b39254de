//! The recent snapshots of a session, for programs that show them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm_core::{Nanos, Snapshot};
use isotherm_record::{Event, FileEndReason, Limits, TargetInfo, WriteError, Writer};
use isotherm_view::View;
use serde::Serialize;

use crate::record::facts;

/// Maximum memory of the snapshots, in bytes.
const HISTORY_BYTES: usize = 8 << 20;
/// Maximum number of regions in one answer, unless a single snapshot has more. The monitor waits while an answer is
/// made: 20 ms for so many.
const MAX_ANSWER_REGIONS: usize = 20_000;

/// The snapshots of the last minutes, and coarser ones of the time before, in bounded memory.
pub struct History(View);

/// The value of `snapshot` in `docs/abi/testing/control.md`.
#[derive(Debug, Serialize)]
pub struct KeptSnapshots {
    seq: u64,
    record: String,
}

impl History {
    /// A history without snapshots.
    pub fn new(targets: impl Iterator<Item = TargetInfo>) -> Self {
        let mut view = View::new(HISTORY_BYTES);
        targets.map(Event::Target).for_each(|event| view.push(event));
        History(view)
    }

    /// Adds the next event of the session.
    pub fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    /// The last snapshot as a record that contains only it; `None` if it is not later than the snapshot number
    /// `after`.
    ///
    /// # Errors
    /// If the snapshot cannot be encoded.
    pub fn last(&self, after: Option<u64>) -> Result<Option<KeptSnapshots>, WriteError> {
        let last = self.0.ring().last().map(|m| &m.snapshot);
        let Some(s) = last.filter(|s| after.is_none_or(|after| s.seq > after)) else {
            return Ok(None);
        };
        encode(self.0.newest(), s).map(Some)
    }

    /// The first kept snapshots that start at `from` or later, as a record; `None` if there are none.
    ///
    /// # Errors
    /// If the snapshots cannot be encoded.
    pub fn since(&self, from: Nanos) -> Result<Option<KeptSnapshots>, WriteError> {
        let ring = self.0.ring();
        let Some(end) = ring.span().map(|span| span.end).filter(|end| *end > from) else {
            return Ok(None);
        };
        // What was joined since the last answer may start before its end.
        let starts = ring.between(&(from..end), Duration::ZERO).into_iter();
        let Some(start) = starts.map(|m| m.snapshot.start).find(|start| *start >= from) else {
            return Ok(None);
        };
        let events = self.0.events(&(start..end), MAX_ANSWER_REGIONS);
        let last = events.iter().rev().find_map(|event| match event {
            Event::Snapshot(s) => Some(Arc::clone(s)),
            _ => None,
        });
        last.map(|last| encode(events, &last)).transpose()
    }
}

/// A record of these events, whose last snapshot is `last`.
fn encode(events: Vec<Event>, last: &Snapshot) -> Result<KeptSnapshots, WriteError> {
    let mut bytes = Vec::new();
    let facts = facts(last.attrs, 0, String::new());
    let mut writer = Writer::to(&mut bytes, "in memory".as_ref(), &facts, Limits::default())?;
    let _ = writer.part(events)?;
    writer.finish(FileEndReason::Stopped, "")?;
    Ok(KeptSnapshots { seq: last.seq, record: BASE64_STANDARD.encode(bytes) })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use isotherm_core::TargetId;
    use isotherm_record::Reader;

    use super::*;
    use crate::scene;

    /// A history of as many snapshots of 1 s, of 300 regions.
    fn filled(snapshots: u64) -> History {
        let fact = TargetInfo { id: TargetId(0), pid: Some(7), command: "app --option".into() };
        let mut history = History::new([fact].into_iter());
        for seq in 0..snapshots {
            let region = |i: u64| scene::region(i << 20, (i + 1) << 20, (i * 7 % 5) as f32);
            let target = scene::target(0, vec![], (0..300).map(region).collect());
            history.push(Event::Snapshot(scene::snapshot(seq, 1.0, vec![target]).into()));
        }
        history
    }

    fn read(kept: &KeptSnapshots) -> Vec<Event> {
        let bytes = BASE64_STANDARD.decode(&kept.record).unwrap();
        Reader::new(Cursor::new(bytes), Path::new("answer")).unwrap().map(Result::unwrap).collect()
    }

    fn snapshots(events: &[Event]) -> Vec<&Snapshot> {
        let snapshots = events.iter().filter_map(|event| match event {
            Event::Snapshot(s) => Some(&**s),
            _ => None,
        });
        snapshots.collect()
    }

    /// `docs/reference/reclaim.md` states the lengths.
    #[test]
    fn answers_are_the_whole_history_without_gaps() {
        let history = filled(3600);
        let (mut from, mut lengths, mut answers) = (Nanos(0), Vec::new(), 0);
        while let Some(kept) = history.since(from).unwrap() {
            let events = read(&kept);
            assert!(
                events.iter().any(|e| matches!(e, Event::Target(f) if f.command == "app --option"))
            );
            let all = snapshots(&events);
            assert!(all.iter().map(|s| s.nr_regions()).sum::<usize>() <= MAX_ANSWER_REGIONS);
            for s in all {
                assert!(from == Nanos(0) || s.start == from, "{:?} after {from:?}", s.start);
                from = s.end;
                lengths.push(s.end.since(s.start).as_secs());
            }
            answers += 1;
            assert_eq!(history.since(from).unwrap().is_none(), kept.seq == 3599);
        }
        let count = |length| lengths.iter().filter(|l| **l == length).count();
        assert_eq!([count(1), count(10), count(60), answers], [60, 24, 25, 2]);
    }

    #[test]
    fn the_last_snapshot_is_returned_once() {
        let history = filled(2);
        let kept = history.last(Some(0)).unwrap().unwrap();
        assert_eq!(kept.seq, 1);
        let events = read(&kept);
        assert_eq!(snapshots(&events).len(), 1);
        assert!(history.last(Some(1)).unwrap().is_none());
        assert!(History::new(std::iter::empty()).last(None).unwrap().is_none());
        assert!(History::new(std::iter::empty()).since(Nanos(0)).unwrap().is_none());
    }
}
