//! The end of a recording, and its remains.

use std::process::{Command, Stdio};
use std::time::Duration;

use isotherm_linux::sys;
use isotherm_record::FileEndReason;
use rustix::process::Signal;

use crate::load::Load;
use crate::run::{Record, Recorder, isotherm, needs_root, run_in, until};
use crate::synthetic;

#[test]
fn signals_end_it_cleanly() {
    needs_root!();
    let load = Load::start(16, 4);
    for (signal, name) in
        [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")]
    {
        let mut recorder = Recorder::counted(&["--pid", &load.pid().to_string()]);
        recorder.until_more(2);
        recorder.signal(signal);
        assert_eq!(recorder.wait().code(), Some(0), "{signal:?}: {}", recorder.err());
        let record = Record::read(&recorder.record());
        let end = record.end.unwrap();
        assert_eq!(end.why, FileEndReason::Stopped, "{signal:?}");
        assert!(end.snapshots >= 2 && end.snapshots == record.snapshots.len() as u64);
        assert!(!record.torn);
        assert_eq!(end.note, format!("stopped by {name}"));
        let err = recorder.err();
        let last: Vec<&str> = err.lines().rev().take(2).collect();
        assert!(last[1].starts_with("recorded ") && last[1].contains(&end.note), "{err}");
        assert!(last[0].starts_with("next: isotherm report"), "{err}");
    }
}

#[test]
fn a_killed_recording_is_read_up_to_its_last_seconds() {
    needs_root!();
    let load = Load::start(16, 4);
    let mut recorder = Recorder::recording(&["--pid", &load.pid().to_string()]);
    let begin = sys::monotonic();
    let has_some = || !Record::read(&recorder.record()).snapshots.is_empty();
    until("what has waited for 5 s", has_some);
    let written = sys::monotonic();
    // Every 5 s, on a machine that is not busy.
    assert!(written.since(begin) < Duration::from_secs(25), "{:?}", written.since(begin));
    recorder.signal(Signal::KILL);
    recorder.wait();
    let record = Record::read(&recorder.record());
    record.assert_without_gaps();
    assert!(record.torn && record.end.is_none());
    // All snapshots up to then, except for the one in progress.
    let lost = written.since(record.snapshots.last().unwrap().end);
    assert!(lost <= Duration::from_secs(2), "lost {lost:?}");

    for report in ["summary", "heatmap"] {
        let done = run_in(recorder.dir(), &["report", report, "-i", "a.rec"]);
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(!done.out.is_empty());
        assert_eq!(done.err.matches("breaks off").count(), 1, "{}", done.err);
    }
    let done = run_in(recorder.dir(), &["export", "--arrow", "-i", "a.rec"]);
    assert!(done.status == 0 && done.err.contains("breaks off"), "{}", done.err);
}

/// As long as the new record has no snapshots, the earlier one is better.
#[test]
fn a_recording_killed_at_once_leaves_the_earlier_one() {
    needs_root!();
    let load = Load::start(16, 4);
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    synthetic::write(&path, 3);
    let before = std::fs::read(&path).unwrap();
    let output = path.to_str().unwrap();
    let mut recorder = Recorder::recording(&["-o", output, "--pid", &load.pid().to_string()]);
    recorder.signal(Signal::KILL);
    recorder.wait();
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // The remains of the new one hinder no other recording.
    let args = ["record", "-o", output, "--duration", "3s", "--pid", &load.pid().to_string()];
    assert_eq!(run_in(dir.path(), &args).status, 0);
    assert_eq!(Record::read(&path).pids(), [load.pid().cast_unsigned()]);
    assert_eq!(std::fs::read(dir.path().join("a.rec.old")).unwrap(), before);
}

#[test]
fn a_recording_continues_after_its_reader_ends() {
    needs_root!();
    let load = Load::start(16, 4);
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    let (nobody, pipe) = std::io::pipe().unwrap();
    drop(nobody);
    let mut command = isotherm(["record", "--duration", "3s", "--pid", &load.pid().to_string()]);
    let status = command.arg("-o").arg(&path).stderr(pipe).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let record = Record::read(&path);
    assert_eq!(record.end.unwrap().why, FileEndReason::Stopped);
    assert!(!record.snapshots.is_empty());
}

/// As under `nohup`, or in the background of a script.
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_so() {
    needs_root!();
    let load = Load::start(16, 4);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_isotherm")]);
    command.arg("record").stdin(Stdio::null());
    let options = ["--pid", &load.pid().to_string(), "--control", "c"];
    let mut recorder = Recorder::start_by(command, &options);
    recorder.until_recording();
    for signal in [Signal::HUP, Signal::INT] {
        recorder.signal(signal);
    }
    recorder.until_more(4);
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let record = Record::read(&recorder.record());
    assert_eq!(record.end.unwrap().note, "stopped by SIGTERM");
    assert!(record.snapshots.len() >= 4, "{} snapshots", record.snapshots.len());
}
