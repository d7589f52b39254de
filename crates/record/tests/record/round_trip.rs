use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Nanos, PageAges, RateSupport, Snapshot};
use isotherm_record::{
    Event, FileEndReason, Limits, Lost, ReadError, Reader, RecordingHeader, Writer, rounded,
};
use proptest::prelude::*;

use crate::samples::{
    NAME, Shared, any_snapshots, attribution, even, facts, few, mapping, reader, record,
    record_attributed, record_with, snapshots, target,
};

proptest! {
    #[test]
    fn a_record_holds_the_written_values_rounded(all in any_snapshots(12)) {
        let bytes = record(&all);
        let events: Vec<Event> = reader(&bytes).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(&events[0], &Event::Header(facts()));
        for id in 0..3u32 {
            prop_assert_eq!(&events[1 + id as usize], &Event::Target(target(id)));
        }
        let Some(Event::End(end)) = events.last() else { panic!("no end") };
        prop_assert_eq!((end.why, end.snapshots, end.files), (FileEndReason::Stopped, all.len() as u64, 1));
        let all: Vec<Snapshot> = all.iter().map(rounded).collect();
        prop_assert_eq!(snapshots(events.into_iter().map(Ok::<_, ReadError>)), all);
    }
}

#[test]
fn facts_of_targets_precede_buffered_snapshots() {
    let all = few(4);
    let events: Vec<Event> = reader(&record_attributed(&all)).collect::<Result<_, _>>().unwrap();
    let kinds: Vec<bool> = events
        .iter()
        .filter_map(|e| match e {
            Event::Attribution(_) => Some(true),
            Event::Snapshot(_) => Some(false),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [[true; 4], [false; 4]].concat());
    let of = |e: &Event| matches!(e, Event::Attribution(a) if *a == attribution(&all[3]));
    assert_eq!(events.iter().filter(|e| of(e)).count(), 1);
}

/// 160 s, with ages every 30 s. Frames hold 5 s.
#[test]
fn unneeded_snapshots_without_ages_are_skipped() {
    let mut all = few(400);
    for s in all.iter_mut().skip(74).step_by(75) {
        let ages = PageAges { since: s.start, begun: s.start, ..PageAges::default() };
        s.targets[0].ages = Some(Arc::new(ages));
    }
    let bytes = record(&all);
    let mut reader = reader(&bytes);
    let wait = Duration::from_secs(20);
    let mut read = Vec::new();
    while let Some(event) = reader.next() {
        if let Event::Snapshot(s) = event.unwrap() {
            reader.skip_until(s.end + wait);
            read.push(s);
        }
    }
    assert_eq!(reader.lost(), Lost::default());
    assert!((8..20).contains(&read.len()), "{}", read.len());
    for s in &read {
        assert_eq!(**s, rounded(&all[usize::try_from(s.seq).unwrap()]));
    }
    let with_ages = |s: &&Arc<Snapshot>| s.targets[0].ages.is_some();
    assert_eq!(read.iter().filter(with_ages).count(), 5);
    for pair in read.windows(2) {
        let gap = pair[1].end.since(pair[0].end);
        assert!(gap < wait + Duration::from_secs(10), "{gap:?}");
        assert!(gap >= wait || with_ages(&&pair[1]), "{gap:?}");
    }
}

/// The first frame holds 0.4 s, and the others 5 s. A reader that presumes that all are as short skips five minutes.
#[test]
fn a_short_frame_does_not_skip_more_than_is_wanted() {
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new(NAME), &facts(), Limits::default()).unwrap();
    for id in 0..3 {
        let _ = writer.target(target(id)).unwrap();
    }
    for s in few(1000) {
        let _ = writer.snapshot(&s).unwrap();
        if s.seq == 0 {
            let _ = writer.flush().unwrap();
        }
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    let mut reader = reader(&bytes);
    let (wait, mut last) = (Duration::from_secs(30), None);
    while let Some(event) = reader.next() {
        let Event::Snapshot(s) = event.unwrap() else { continue };
        reader.skip_until(s.end + wait);
        let gap = s.end.since(last.replace(s.end).unwrap_or(s.end));
        assert!(gap < wait + Duration::from_secs(10), "{gap:?}");
    }
    assert!(last.is_some());
}

/// A file contains its targets. Data of other targets would belong to none.
#[test]
fn attributions_of_unknown_targets_are_left_out() {
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new(NAME), &facts(), Limits::default()).unwrap();
    let _ = writer.attribution(attribution(&few(1)[0])).unwrap();
    writer.finish(FileEndReason::Stopped, "").unwrap();
    let reported = reader(&bytes).filter(|e| matches!(e, Ok(Event::Attribution(_)))).count();
    assert_eq!(reported, 0);
}

#[test]
fn mappings_are_written_when_they_change_and_shared_while_they_do_not() {
    let events: Vec<Event> = reader(&record(&few(8))).collect::<Result<_, _>>().unwrap();
    let reported = events.iter().filter(|e| matches!(e, Event::Mappings { .. })).count();
    assert_eq!(reported, 2);
    let of = |e: &Event| match e {
        Event::Snapshot(s) => Some(s.targets[0].mappings.clone()),
        _ => None,
    };
    let arcs: Vec<_> = events.iter().filter_map(of).collect();
    assert!(Arc::ptr_eq(&arcs[0], &arcs[3]) && Arc::ptr_eq(&arcs[4], &arcs[7]));
    assert!(!Arc::ptr_eq(&arcs[3], &arcs[4]));
}

/// After each snapshot, all but the last 5 s can be read from the written part.
#[test]
fn a_kill_costs_no_more_than_5_s() {
    for interval in [100_000_000, 400_000_000, 1_000_000_000, 3_000_000_000, 7_000_000_000] {
        let mappings = Arc::new(vec![mapping(0x1000, 0x9000, "[heap]")]);
        let bytes = Shared::default();
        let mut writer =
            Writer::to(bytes.clone(), Path::new(NAME), &facts(), Limits::default()).unwrap();
        for seq in 0..40 {
            let times = (Nanos(seq * interval), Nanos((seq + 1) * interval));
            let s = Snapshot { start: times.0, end: times.1, ..even(seq, 3, &mappings) };
            let _ = writer.snapshot(&s).unwrap();
            let there = snapshots(reader(&bytes.0.borrow()));
            let written = there.last().map_or(Nanos(0), |s| s.end);
            let next = (seq + 2) * interval;
            assert!(next - written.0 <= 5_000_000_000.max(interval), "{interval}: {seq}");
            let by = writer.flush_by().map_or(next, |by| by.0);
            assert!(by >= next, "no flush is due before the next snapshot");
        }
    }
}

#[test]
fn snapshots_in_one_frame_save_space_and_frames() {
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new(NAME), &facts(), Limits::default()).unwrap();
    for s in few(100) {
        let _ = writer.snapshot(&s).unwrap();
    }
    let summary = writer.finish(FileEndReason::Stopped, "").unwrap();
    // 9 schemas, the targets, 2 sets of mappings, 12 snapshots per frame, the end
    assert_eq!(summary.frames, 9 + 1 + 2 + 9 + 1);
    assert_eq!(summary.bytes, bytes.len() as u64);
}

#[test]
fn a_snapshot_that_no_source_may_deliver_is_refused() {
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new(NAME), &facts(), Limits::default()).unwrap();
    let good = few(2);
    let mut bad = good[1].clone();
    bad.targets[0].regions.swap(0, 1);
    assert!(writer.snapshot(&bad).unwrap_err().to_string().contains("out of order"));
    let mut bad = good[1].clone();
    bad.targets[0].regions[0].resident_bp = 10_001;
    assert!(writer.snapshot(&bad).unwrap_err().to_string().contains("share"));
    let mut bad = good[1].clone();
    let support = RateSupport { measured_bp: 10_000, extended_bp: 1 };
    bad.targets[0].regions[0].support = Some(support);
    assert!(writer.snapshot(&bad).unwrap_err().to_string().contains("measured and extended"));
    let mut bad = good[1].clone();
    bad.targets[0].regions[0].rate.hz = f32::NAN;
    assert!(writer.snapshot(&bad).unwrap_err().to_string().contains("rate"));
    let _ = writer.snapshot(&good[1]).unwrap();
    assert!(writer.snapshot(&good[0]).unwrap_err().to_string().contains("later"));
    writer.finish(FileEndReason::Stopped, "").unwrap();
    assert_eq!(snapshots(reader(&bytes)), &good[1..]);
}

/// `cat a b` is a record of two recordings.
#[test]
fn joined_records_are_read_one_after_the_other() {
    let other = RecordingHeader { seed: 8, ..facts() };
    let both = [record(&few(3)), record_with(&other, &few(2))].concat();
    let events: Vec<Event> = reader(&both).collect::<Result<_, _>>().unwrap();
    let reported: Vec<_> = events.iter().filter(|e| matches!(e, Event::Header(_))).collect();
    assert_eq!(reported, [&Event::Header(facts()), &Event::Header(other)]);
    let all = snapshots(events.into_iter().map(Ok::<_, ReadError>));
    assert_eq!(all, [few(3), few(2)].concat());
}

#[test]
fn something_else_is_distinguished() {
    for bytes in [&b""[..], b"PERFILE2", b"a text that is longer than the header of a frame"] {
        let mut reader = Reader::new(bytes, Path::new(NAME)).unwrap();
        assert!(matches!(reader.next(), Some(Err(ReadError::NotARecord { .. }))), "{bytes:?}");
        assert!(reader.next().is_none());
    }
}
