//! `--max-size`, `--rotate`, and existing records.

use std::fs;
use std::path::Path;

use isotherm_record::FileEndReason;
use rustix::process::Signal;

use crate::load::Load;
use crate::run::{Record, Recorder, needs_root, run_in, until};

/// Many snapshots per second.
pub const FAST: [&str; 4] = ["--sample", "2ms", "--aggr", "16ms"];

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |m| m.len())
}

#[test]
fn the_size_is_kept_to_the_byte() {
    needs_root!();
    let load = Load::start(64, 8);
    let pid = load.pid().to_string();
    // No multiple of anything, and not below the minimum of a file.
    let options = ["--max-size", "70001", "--duration", "1h", "--pid", &pid];
    let mut recorder = Recorder::start(&[&FAST[..], &options].concat());
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let len = size(&recorder.record());
    assert!((35_000..=70_001).contains(&len), "{len} bytes");
    let record = Record::read(&recorder.record());
    record.assert_without_gaps();
    let end = record.end.unwrap();
    assert_eq!((end.why, end.snapshots), (FileEndReason::MaxSize, record.snapshots.len() as u64));
    assert!(end.snapshots > 0);
    assert!(recorder.err().contains("has reached --max-size"), "{}", recorder.err());
    let entries = fs::read_dir(recorder.dir()).unwrap().count();
    assert_eq!(entries, 2, "the record and our log");
}

#[test]
fn files_rotate_within_their_size() {
    needs_root!();
    let load = Load::start(64, 8);
    let options = ["--max-size", "210001", "--rotate", "3", "--pid", &load.pid().to_string()];
    let mut recorder = Recorder::start(&[&FAST[..], &options].concat());
    let parts = ["a.rec", "a.rec.1", "a.rec.2"].map(|name| recorder.dir().join(name));
    let oldest = || fs::metadata(&parts[2]).ok().map(|m| std::os::unix::fs::MetadataExt::ino(&m));
    let mut most = 0;
    let mut watch = || most = most.max(parts.iter().map(|p| size(p)).sum::<u64>());
    until("a third file", || {
        watch();
        oldest().is_some()
    });
    let first = oldest();
    until("a file that makes room", || {
        watch();
        oldest() != first
    });
    recorder.signal(Signal::INT);
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    assert!((100_000..=210_001).contains(&most), "{most} bytes");
    assert!(parts.iter().all(|p| (1..=70_000).contains(&size(p))), "a third for each");
    assert_eq!(fs::read_dir(recorder.dir()).unwrap().count(), 4, "three parts and our log");

    let record = Record::read(&parts[0]);
    record.assert_without_gaps();
    let end = record.end.as_ref().unwrap();
    assert!(end.why == FileEndReason::Stopped && end.files >= 4, "{end:?}");
    assert!(record.snapshots[0].seq > 0, "the oldest have made room");
    assert_eq!(record.snapshots.last().unwrap().seq + 1, end.snapshots);
    let reported: Vec<_> = record.targets.iter().map(|t| t.pid).collect();
    assert_eq!(reported, [Some(load.pid().cast_unsigned()); 3], "told in each file");

    let done = run_in(recorder.dir(), &["report", "summary", "--json", "-i", "a.rec"]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    assert_eq!(done.json()["snapshots"], record.snapshots.len());
    let done = run_in(recorder.dir(), &["report", "heatmap", "-i", "a.rec"]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
}

#[test]
fn an_earlier_record_is_kept() {
    needs_root!();
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let mut recorder = Recorder::start(&["--seed", "1", "--duration", "2s", "--pid", &pid]);
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let again = |seed, duration| {
        let args = ["record", "-o", "a.rec", "--seed", seed, "--duration", duration, "--pid", &pid];
        let done = run_in(recorder.dir(), &args);
        assert_eq!(done.status, 0, "{}", done.err);
        done.err
    };
    again("2", "3s");
    assert_eq!(Record::read(&recorder.record()).facts.seed, 2);
    assert_eq!(Record::read(&recorder.dir().join("a.rec.old")).facts.seed, 1);
    // A recording that is too short for a snapshot replaces no record.
    let err = again("3", "100ms");
    assert!(err.contains("which is unchanged"), "{err}");
    assert_eq!(Record::read(&recorder.record()).facts.seed, 2);
    assert_eq!(Record::read(&recorder.dir().join("a.rec.old")).facts.seed, 1);
    assert_eq!(fs::read_dir(recorder.dir()).unwrap().count(), 3, "two records and our log");
}
