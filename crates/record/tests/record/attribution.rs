//! Attribution of targets: its order, and its limits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Attribution, Nanos};
use isotherm_record::{Event, FileEndReason, Limits, ReadError, Reader, RecordProgress, Writer};

use crate::damage::frames;
use crate::samples::{
    NAME, Shared, attribution, even, facts, few, mapping, reader, record_attributed, target,
};

/// The kind of frames with attribution.
const ATTRIBUTION: u8 = 5;

fn reported(events: impl IntoIterator<Item = Result<Event, ReadError>>) -> Vec<Attribution> {
    let of = |event| match event {
        Ok(Event::Attribution(a)) => Some(a),
        _ => None,
    };
    events.into_iter().filter_map(of).collect()
}

#[test]
fn rows_ascend_over_the_files_of_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rec");
    let limits = Limits { max_size: Some(256 << 10), rotate: Some(3) };
    let mut writer = Writer::create(&path, &facts(), limits).unwrap();
    let _ = writer.target(target(1)).unwrap();
    let mappings = Arc::new(vec![mapping(0x1000, 0x0100_0000, "[heap]")]);
    let all = (0..1000).map(|seq| {
        let mut s = even(seq, 300, &mappings);
        // Values with little similarity, so that files fill up.
        for (i, r) in (0u64..).zip(&mut s.targets[0].regions) {
            let noise = (seq * 1000 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            r.age = Duration::from_nanos(noise >> 40);
        }
        s
    });
    for s in all {
        let _ = writer.attribution(attribution(&s)).unwrap();
        let _ = writer.snapshot(&s).unwrap();
    }
    let files = writer.summary().files;
    writer.finish(FileEndReason::Stopped, "").unwrap();
    assert!(files > 4, "{files}");

    let events: Vec<Event> = Reader::open(&path).unwrap().collect::<Result<_, _>>().unwrap();
    // The rows of the first kept snapshots may have been in a file that was deleted.
    let mut last = None;
    for event in &events {
        match event {
            Event::Attribution(a) => assert!(last.replace(a.at) < Some(a.at)),
            Event::Snapshot(s) => assert!(last.is_none_or(|last| attribution(s).at <= last)),
            _ => {}
        }
    }
    let kept = events.iter().filter(|e| matches!(e, Event::Snapshot(_))).count();
    let reported = reported(events.into_iter().map(Ok));
    assert!(reported.len() > kept / 2, "{} of {kept}", reported.len());
    assert_eq!(reported.last().unwrap().swapped, 999 << 20);
}

#[test]
fn so_many_rows_do_not_wait_for_a_snapshot() {
    let bytes = Shared::default();
    let limits = Limits::default();
    let mut writer = Writer::to(bytes.clone(), Path::new(NAME), &facts(), limits).unwrap();
    let _ = writer.target(target(1)).unwrap();
    let before = bytes.0.borrow().len();
    let row = |at| Attribution { at: Nanos(at), ..attribution(&few(1)[0]) };
    for at in 1..4096 {
        assert_eq!(writer.attribution(row(at)).unwrap(), RecordProgress::Going);
        assert_eq!(bytes.0.borrow().len(), before);
    }
    let _ = writer.attribution(row(4096)).unwrap();
    assert!(bytes.0.borrow().len() > before);
    let _ = writer.attribution(row(4097)).unwrap();
    let written = reported(reader(&bytes.0.borrow()));
    assert_eq!(written, (1..=4096).map(row).collect::<Vec<_>>());
}

#[test]
fn invalid_attributions_are_not_written() {
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new(NAME), &facts(), Limits::default()).unwrap();
    let _ = writer.target(target(1)).unwrap();
    let [first, second] = [0, 1].map(|i| attribution(&few(2)[i]));
    let long = Attribution { cgroup: "/".repeat(4097).into(), ..second.clone() };
    let _ = writer.attribution(second.clone()).unwrap();
    let _ = writer.attribution(long).unwrap();
    let refused = writer.attribution(first).unwrap_err().to_string();
    assert!(refused.contains("after a later one"), "{refused}");
    let _ = writer.snapshot(&few(1)[0]).unwrap();
    writer.finish(FileEndReason::Stopped, "").unwrap();
    assert_eq!(reported(reader(&bytes)), [second]);
}

#[test]
fn rows_that_do_not_ascend_are_damage() {
    let all = few(30);
    let bytes = record_attributed(&all);
    let rows: Vec<_> =
        frames(&bytes).into_iter().filter(|(at, _)| bytes[at + 10] == ATTRIBUTION).collect();
    // The first one is the schema.
    let ((a, a_len), (b, b_len)) = (rows[1], rows[2]);
    let (a_end, b_end) = (a + a_len, b + b_len);
    let parts =
        [&bytes[..a], &bytes[b..b_end], &bytes[a_end..b], &bytes[a..a_end], &bytes[b_end..]];
    let swapped = parts.concat();
    let error = reader(&swapped).find_map(Result::err).unwrap().to_string();
    assert!(error.contains("comes after a later one"), "{error}");
    let mut skipping = reader(&swapped).skip_damaged();
    let reported = reported(skipping.by_ref());
    assert!(
        reported.is_sorted_by_key(|a| a.at) && reported.len() < all.len(),
        "{}",
        reported.len()
    );
    assert_eq!(skipping.lost().places, 1);
}
