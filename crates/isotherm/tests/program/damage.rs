//! Reports and exports of records that are cut or damaged.

use std::fs;
use std::path::Path;

use isotherm_record::{Event, Reader};
use tempfile::TempDir;

use crate::run::{Done, run_in};
use crate::synthetic;

const SNAPSHOTS: u64 = 12;
const COMMANDS: [&[&str]; 4] = [
    &["report", "summary"],
    &["report", "summary", "--json"],
    &["report", "heatmap", "-o", "-"],
    &["export", "--arrow"],
];

struct Sample {
    dir: TempDir,
    bytes: Vec<u8>,
}

fn sample() -> Sample {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("whole.rec");
    synthetic::write(&path, SNAPSHOTS);
    Sample { bytes: fs::read(path).unwrap(), dir }
}

/// What each command makes of `bytes`, and the snapshots that can be had of them.
fn try_all(dir: &Path, bytes: &[u8], mut assert: impl FnMut(&str, Done, u64)) {
    let path = dir.join("bad.rec");
    fs::write(&path, bytes).unwrap();
    let events = Reader::open(&path).unwrap();
    let readable = events.filter(|e| matches!(e, Ok(Event::Snapshot(_)))).count();
    for command in COMMANDS {
        let done = run_in(dir, &[command, &["-i", "bad.rec"]].concat());
        assert!(!done.err.contains("panicked"), "{command:?}: {}", done.err);
        assert!(!done.err.is_empty(), "{command:?}: nothing is said");
        assert(&command.join(" "), done, readable as u64);
    }
}

/// A dozen places spread over the record, the first header and the end among them.
fn places(len: usize) -> impl Iterator<Item = usize> {
    [0, 1, 9, 13, 23].into_iter().chain((1..9).map(move |i| len * i / 9)).chain([len - 1])
}

#[test]
fn a_record_cut_anywhere_is_shown_as_far_as_it_goes() {
    let sample = sample();
    for end in places(sample.bytes.len()) {
        try_all(sample.dir.path(), &sample.bytes[..end], |command, done, readable| {
            let text = format!("{command}, cut at {end}: {}", done.err);
            let said = if end == 0 { "is no isotherm record" } else { "breaks off after byte" };
            assert!(done.err.contains(said), "{text}");
            let shows_nothing = readable == 0 && !command.starts_with("export");
            assert_eq!(done.status, i32::from(end == 0 || shows_nothing), "{text}");
            if done.status == 0 && command.ends_with("json") {
                assert_eq!(done.json()["snapshots"], readable, "{text}");
            }
        });
    }
}

#[test]
fn a_record_damaged_anywhere_is_told_and_not_shown() {
    let sample = sample();
    for at in places(sample.bytes.len()) {
        let mut bytes = sample.bytes.clone();
        bytes[at] ^= 0x10;
        try_all(sample.dir.path(), &bytes, |command, done, _| {
            let text = format!("{command}, byte {at}: {}", done.err);
            let said = if at < 8 { "is no isotherm record" } else { "is damaged in the frame" };
            assert!(done.status == 1 && done.err.contains(said), "{text}");
            assert!(done.out.is_empty() || command.starts_with("export"), "{text}");
        });
    }
}

/// As after a power cut.
#[test]
fn a_tail_of_zeros_is_an_end_that_is_missing() {
    let sample = sample();
    let mut bytes = sample.bytes.clone();
    bytes.truncate(bytes.len() / 512 * 512);
    bytes.resize(bytes.len() + 100_000, 0);
    try_all(sample.dir.path(), &bytes, |command, done, readable| {
        assert!(done.status == 0 && done.err.contains("breaks off"), "{command}: {}", done.err);
        assert!(readable >= SNAPSHOTS / 2);
    });
}

#[test]
fn what_cannot_be_a_record_is_told_at_once() {
    let dir = TempDir::new().unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(dir.path().join("pipe")).status();
    assert!(fifo.unwrap().success());
    for command in COMMANDS {
        for (name, said) in [
            ("pipe", "pipe is no isotherm record"),
            ("/dev/zero", "/dev/zero is no isotherm record"),
            ("/dev/null", "/dev/null is no isotherm record"),
            (".", "cannot read the record .: "),
            ("/dev/null/a.rec", "cannot read the record /dev/null/a.rec"),
        ] {
            let done = run_in(dir.path(), &[command, &["-i", name]].concat());
            assert!(done.status == 1 && done.err.contains(said), "{command:?}: {}", done.err);
            assert!(done.out.is_empty() || command[0] == "export", "{command:?} {name}");
        }
    }
}
