//! How a recording ends, and what is left of it.

use std::time::Duration;

use isotherm_linux::sys;
use isotherm_record::Why;
use rustix::process::Signal;

use crate::load::Load;
use crate::run::{Record, Recorder, isotherm, root_or_skip, run_in};

#[test]
fn signals_end_it_cleanly() {
    if !root_or_skip("signals_end_it_cleanly") {
        return;
    }
    let load = Load::start(16, 4);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut recorder = Recorder::recording(&["--pid", &load.pid().to_string()]);
        std::thread::sleep(Duration::from_millis(300));
        recorder.signal(signal);
        assert_eq!(recorder.wait().code(), Some(0), "{signal:?}: {}", recorder.err());
        let record = Record::read(&recorder.record());
        let end = record.end.unwrap();
        assert_eq!(end.why, Why::Stopped, "{signal:?}");
        assert!(end.snapshots >= 2 && end.snapshots == record.snapshots.len() as u64);
        assert!(!record.torn);
        assert!(recorder.err().lines().last().unwrap().starts_with("recorded "));
    }
}

#[test]
fn a_killed_recording_is_read_up_to_its_last_seconds() {
    if !root_or_skip("a_killed_recording_is_read_up_to_its_last_seconds") {
        return;
    }
    let load = Load::start(16, 4);
    let mut recorder = Recorder::recording(&["--pid", &load.pid().to_string()]);
    std::thread::sleep(Duration::from_millis(6500));
    recorder.signal(Signal::KILL);
    let killed = sys::monotonic();
    recorder.wait();
    let record = Record::read(&recorder.record());
    record.assert_without_gaps();
    assert!(record.torn && record.end.is_none());
    let lost = killed.since(record.snapshots.last().unwrap().end);
    // 5 s of snapshots, and the one that was being made.
    assert!(lost <= Duration::from_millis(5500), "lost {lost:?}");

    for report in ["summary", "heatmap"] {
        let done = run_in(recorder.dir(), &["report", report, "-i", "a.rec"]);
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(!done.out.is_empty());
        assert_eq!(done.err.matches("breaks off").count(), 1, "{}", done.err);
    }
    let done = run_in(recorder.dir(), &["export", "--arrow", "-i", "a.rec"]);
    assert!(done.status == 0 && done.err.contains("breaks off"), "{}", done.err);
}

#[test]
fn a_recording_goes_on_when_nobody_reads_its_words() {
    if !root_or_skip("a_recording_goes_on_when_nobody_reads_its_words") {
        return;
    }
    let load = Load::start(16, 4);
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    let (nobody, pipe) = std::io::pipe().unwrap();
    drop(nobody);
    let mut command = isotherm(["record", "--duration", "1s", "--pid", &load.pid().to_string()]);
    let status = command.arg("-o").arg(&path).stderr(pipe).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let record = Record::read(&path);
    assert_eq!(record.end.unwrap().why, Why::Stopped);
    assert!(!record.snapshots.is_empty());
}
