//! Reports and exports of records that are cut or damaged.

use std::fs;
use std::path::Path;

use isotherm_record::{Event, Reader};
use tempfile::TempDir;

use crate::run::{Done, finish, isotherm, run_in};
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

/// The output of each command for `bytes`, and the number of readable snapshots.
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

/// A dozen places distributed over the record, including the first header and the end.
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
fn a_record_damaged_anywhere_is_reported_and_not_shown() {
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

/// The beginnings of the frames, and their kinds.
fn frames(bytes: &[u8]) -> Vec<(usize, usize, u8)> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap());
        all.push((at, 24 + length as usize, bytes[at + 10]));
        at += 24 + length as usize;
    }
    all
}

/// A record with a flipped byte in the second of its frames of snapshots.
fn damaged(dir: &Path, bytes: &[u8]) -> u64 {
    let snapshots: Vec<_> = frames(bytes).into_iter().filter(|f| f.2 == 1).collect();
    let (at, length, _) = snapshots[2];
    let mut bytes = bytes.to_vec();
    bytes[at + length / 2] ^= 1;
    fs::write(dir.join("bad.rec"), bytes).unwrap();
    let left = Reader::open(&dir.join("bad.rec")).unwrap().skip_damaged();
    SNAPSHOTS - left.filter(|e| matches!(e, Ok(Event::Snapshot(_)))).count() as u64
}

#[test]
fn sound_parts_of_a_damaged_record_are_shown_with_the_gap() {
    let sample = sample();
    let dir = sample.dir.path();
    let missing = damaged(dir, &sample.bytes);
    assert!(missing > 0 && missing < SNAPSHOTS / 2);
    let said = format!("{missing} snapshots are missing");
    for kind in ["summary", "heatmap", "wss", "regions", "access", "raw", "advice", "cgroups"] {
        let args = ["report", kind, "-i", "bad.rec"];
        let reported = run_in(dir, &args);
        assert!(
            reported.status == 1 && reported.err.contains("--skip-damaged"),
            "{kind}: {}",
            reported.err
        );
        let done = run_in(dir, &[&args[..], &["--skip-damaged"]].concat());
        assert!(done.status == 0 && done.text().contains(&said), "{kind}: {}", done.text());
        if kind == "raw" {
            continue;
        }
        let json = run_in(dir, &[&args[..], &["--skip-damaged", "--json"]].concat()).json();
        assert_eq!(json["gaps"][0]["snapshots"], missing, "{kind}");
        if kind == "heatmap" {
            let row = json["panels"][0]["cells"]["states"][0].as_str().unwrap();
            assert!(row.contains("ddd") && row.contains('r'), "{row}");
        }
    }
    for name in ["a.svg", "b.svg"] {
        let kind = if name == "a.svg" { "heatmap" } else { "wss" };
        let done = run_in(dir, &["report", kind, "-i", "bad.rec", "--skip-damaged", "-o", name]);
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(fs::read_to_string(dir.join(name)).unwrap().contains(&said), "{kind}");
    }
    let done = run_in(dir, &["export", "--arrow", "-i", "bad.rec", "--skip-damaged"]);
    assert!(done.status == 0 && done.err.contains(&said), "{}", done.err);
    let check = run_in(dir, &["record", "--check", "bad.rec"]);
    let counted = format!("missing: {missing} snapshots");
    assert!(check.status == 1 && check.text().contains(&counted), "{}", check.text());
}

/// The message was once "its recording was too short: record for longer".
#[test]
fn a_record_without_a_readable_snapshot_is_said_to_be_damaged() {
    let sample = sample();
    let mut bytes = sample.bytes.clone();
    let frames = frames(&bytes);
    for &(at, len, _) in frames.iter().filter(|(_, _, kind)| *kind == 1) {
        bytes[at + len / 2] ^= 1;
    }
    let dir = sample.dir.path();
    fs::write(dir.join("none.rec"), bytes).unwrap();
    let done = run_in(dir, &["report", "summary", "-i", "none.rec", "--skip-damaged"]);
    assert_eq!((done.status, done.text()), (1, ""), "{}", done.err);
    assert!(
        done.err.contains("because it is damaged") && !done.err.contains("too short"),
        "{}",
        done.err
    );
    assert!(done.err.contains("record --check"), "{}", done.err);
}

/// It was once reported as sound, with exit status 0.
#[test]
fn a_record_cut_before_its_first_snapshot_is_not_sound() {
    let sample = sample();
    // The first frame of that kind has the facts of the record.
    let frames = frames(&sample.bytes);
    let &(at, ..) = frames.iter().filter(|(_, _, kind)| *kind == 1).nth(1).unwrap();
    let dir = sample.dir.path();
    for end in [at, at + 9] {
        fs::write(dir.join("cut.rec"), &sample.bytes[..end]).unwrap();
        let done = run_in(dir, &["record", "--check", "cut.rec"]);
        assert_eq!(done.status, 1, "{} {}", done.text(), done.err);
        assert!(done.text().contains("cut.rec is cut short: 0 snapshots"), "{}", done.text());
        assert!(done.err.contains("breaks off"), "{}", done.err);
    }
}

#[test]
fn a_record_cut_in_its_first_frame_is_none() {
    let sample = sample();
    fs::write(sample.dir.path().join("ten.rec"), &sample.bytes[..10]).unwrap();
    let done = run_in(sample.dir.path(), &["record", "--check", "ten.rec"]);
    assert_eq!((done.status, done.text()), (1, ""), "{}", done.err);
    assert!(done.err.contains("ends within a frame"), "{}", done.err);
}

/// A reader gets the same from standard input.
#[test]
fn a_record_is_read_from_standard_input() {
    let sample = sample();
    let path = sample.dir.path().join("whole.rec");
    for command in
        [&["report", "heatmap", "--json"][..], &["report", "cgroups"], &["export", "--arrow"]]
    {
        let by_name = run_in(sample.dir.path(), &[command, &["-i", "whole.rec"]].concat());
        let mut piped = isotherm([command, &["-i", "-"]].concat());
        let piped = finish(piped.stdin(fs::File::open(&path).unwrap()));
        assert_eq!((piped.status, piped.out), (0, by_name.out), "{command:?}: {}", piped.err);
    }
}

/// A full disk leaves the earlier file, and no incomplete one.
#[test]
fn an_output_is_moved_into_place_when_complete() {
    let sample = sample();
    let dir = sample.dir.path();
    for (name, args) in [
        ("a.png", &["report", "heatmap", "-i", "whole.rec", "-o", "a.png"][..]),
        ("a.svg", &["report", "wss", "-i", "whole.rec", "-o", "a.svg"]),
        ("a.arrow", &["export", "--arrow", "-i", "whole.rec", "-o", "a.arrow"]),
    ] {
        fs::write(dir.join(name), "before").unwrap();
        // The limit of a file is 4 KiB, and the signal for that is ignored.
        let limited = "trap '' XFSZ; ulimit -f 4 && exec \"$@\"";
        let mut command = std::process::Command::new("bash");
        command.args(["-c", limited, "bash", env!("CARGO_BIN_EXE_isotherm")]).args(args);
        let done = finish(command.current_dir(dir));
        assert!(done.status == 1 && done.err.contains("cannot write"), "{name}: {}", done.err);
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), "before");
        assert_eq!(run_in(dir, args).status, 0);
        assert_ne!(fs::read(dir.join(name)).unwrap(), b"before");
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 4, "no file is left aside");
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
fn files_that_cannot_be_records_are_reported_at_once() {
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
