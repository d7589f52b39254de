//! Reading on from a mark, and reading a sample.

use std::sync::Arc;

use isotherm_core::{PageAges, Snapshot};
use isotherm_record::{Event, Lost, Reader, rounded};

use crate::samples::{few, record_attributed};

/// 160 s in frames of 5 s, with ages every 4 s.
fn stored() -> (tempfile::TempDir, Vec<Snapshot>) {
    let mut all = few(400);
    for s in all.iter_mut().step_by(10) {
        let ages = PageAges { since: s.start, begun: s.start, ..PageAges::default() };
        s.targets[0].ages = Some(Arc::new(ages));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("r"), record_attributed(&all)).unwrap();
    let all = all.iter().map(rounded).collect();
    (dir, all)
}

fn snapshots(
    reader: impl Iterator<Item = Result<Event, isotherm_record::ReadError>>,
) -> Vec<Snapshot> {
    let events = reader.map(|event| event.unwrap());
    let of =
        |event| if let Event::Snapshot(s) = event { Some(Arc::unwrap_or_clone(s)) } else { None };
    events.filter_map(of).collect()
}

#[test]
fn from_each_mark_on_the_rest_is_the_same() {
    let (dir, all) = stored();
    let mut reader = Reader::open(&dir.path().join("r")).unwrap();
    let (mut marks, mut seen) = (Vec::new(), 0);
    while let Some(event) = reader.next() {
        seen += usize::from(matches!(event.unwrap(), Event::Snapshot(_)));
        marks.extend(reader.mark().map(|mark| (mark, seen)));
    }
    let places = marks.iter().map(|(_, seen)| seen).collect::<std::collections::BTreeSet<_>>();
    assert!(places.len() >= 30, "{} places", places.len());
    for (mark, seen) in marks {
        assert_eq!(snapshots(Reader::resume(&mark).unwrap()), all[seen..]);
    }
}

#[test]
fn a_sample_of_frames_spans_the_record_and_loses_nothing() {
    let (dir, all) = stored();
    let mut reader = Reader::open(&dir.path().join("r")).unwrap().sampled(4);
    let read = snapshots(reader.by_ref().collect::<Vec<_>>().into_iter());
    assert_eq!(reader.lost(), Lost::default());
    assert!((80..130).contains(&read.len()), "{} snapshots", read.len());
    for s in &read {
        assert_eq!(*s, all[usize::try_from(s.seq).unwrap()]);
    }
    let gaps = read.windows(2).map(|pair| pair[1].seq - pair[0].seq);
    assert!(gaps.max() <= Some(60));
}
