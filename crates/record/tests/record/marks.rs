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

/// As a recorder that begins a new file does.
#[test]
fn a_mark_does_not_read_another_file_of_its_name() {
    let (dir, _) = stored();
    let path = dir.path().join("r");
    let mut reader = Reader::open(&path).unwrap();
    while reader.mark().is_none() {
        reader.next().unwrap().unwrap();
    }
    let mark = reader.mark().unwrap();
    std::fs::rename(&path, dir.path().join("r.1")).unwrap();
    std::fs::copy(dir.path().join("r.1"), &path).unwrap();
    let Err(why) = Reader::resume(&mark) else { panic!("it reads the other file") };
    assert!(why.to_string().contains("another file"), "{why}");
}

#[test]
fn marks_share_the_mappings_that_do_not_change() {
    let (dir, all) = stored();
    let mut reader = Reader::open(&dir.path().join("r")).unwrap();
    let mut marks = Vec::new();
    while let Some(event) = reader.next() {
        let is_snapshot = matches!(event.unwrap(), Event::Snapshot(_));
        marks.extend(reader.mark().filter(|_| is_snapshot));
    }
    let [first, second] = [&marks[0], &marks[1]];
    let mappings = all[0].targets[0].mappings.len() * size_of::<isotherm_core::Mapping>();
    assert!(first.bytes_beyond(None) >= second.bytes_beyond(Some(first)) + mappings);
    assert_eq!(second.bytes_beyond(None), first.bytes_beyond(None));
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
