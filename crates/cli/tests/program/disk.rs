//! Places that cannot be written, or only for some time.

#![allow(clippy::undocumented_unsafe_blocks, reason = "a mount namespace of our own")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use isotherm_record::FileEndReason;
use rustix::process::Signal;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tempfile::TempDir;

use crate::load::Load;
use crate::run::{Record, Recorder, isotherm, needs_root, run_in, until};
use crate::synthetic;

/// Many snapshots, written often: before half of the size is pending, whatever its age.
const OFTEN: [&str; 6] = ["--sample", "2ms", "--aggr", "16ms", "--max-size", "200K"];

/// Runs a test in a thread with mounts of its own, which end with the thread.
pub fn with_own_mounts(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        unsafe { unshare_unsafe(UnshareFlags::NEWNS).unwrap() };
        sh("mount --make-rprivate /", "/".as_ref());
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn sh(script: &str, dir: &Path) {
    let status = Command::new("sh").args(["-c", script]).current_dir(dir).status().unwrap();
    assert!(status.success(), "{script}");
}

pub fn mount(dir: &Path, options: &str) {
    sh(&format!("mount -t tmpfs -o {options} none ."), dir);
}

#[test]
fn snapshots_before_a_full_disk_are_kept() {
    needs_root!();
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=1m");
        fs::write(disk.path().join("others"), vec![1; (1 << 20) - (100 << 10)]).unwrap();
        let output = disk.path().join("b.rec");
        let load = Load::start(64, 8);
        let pid = load.pid().to_string();
        let options = ["-o", output.to_str().unwrap(), "--duration", "1h", "--pid", &pid];
        let mut recorder = Recorder::start(&[&OFTEN[..], &options].concat());
        assert_eq!(recorder.wait().code(), Some(1), "{}", recorder.err());
        let err = recorder.err();
        let last = err.lines().last().unwrap();
        for part in ["cannot write the record", "b.rec", "No space left", "has room"] {
            assert!(last.contains(part), "{err}");
        }
        let record = Record::read(&output);
        record.assert_without_gaps();
        assert!(record.snapshots.len() >= 20, "{} snapshots", record.snapshots.len());
        if let Some(end) = &record.end {
            assert_eq!(end.why, FileEndReason::Failed);
            assert!(end.note.contains("No space left"), "{end:?}");
        }
        let done = run_in(disk.path(), &["report", "summary", "-i", "b.rec"]);
        assert_eq!(done.status, 0, "{}", done.err);
    });
}

/// Everything is pending until the end, and does not fit then. The earlier record is kept.
#[test]
fn a_disk_that_is_full_at_the_end_is_reported() {
    needs_root!();
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=1m");
        let (output, others) = (disk.path().join("b.rec"), disk.path().join("others"));
        let load = Load::start(64, 8);
        let pid = load.pid().to_string();
        // Whether the disk was full. A slow machine may have written everything before.
        let record = || {
            let options = ["-o", output.to_str().unwrap(), "--regions", "500..1000", "--pid", &pid];
            let mut recorder = Recorder::recording(&options);
            sh("cat /dev/zero > others 2>/dev/null; true", disk.path());
            std::thread::sleep(Duration::from_millis(1000));
            recorder.signal(Signal::INT);
            let status = recorder.wait().code();
            assert!(status == Some(0) || recorder.err().contains("No space left"));
            fs::remove_file(&others).unwrap();
            status == Some(1)
        };
        let left = (0..5).find_map(|_| {
            let failed = record();
            let left = Record::read(&output);
            fs::remove_file(&output).unwrap();
            (failed && left.snapshots.is_empty()).then_some(left)
        });
        let left = left.expect("something is written before the disk is full, each time");
        assert!(
            left.torn || left.end.unwrap().why == FileEndReason::Failed,
            "an end, if it fits still"
        );

        let mut before = Vec::new();
        let failed = (0..5).any(|_| {
            for file in fs::read_dir(disk.path()).unwrap() {
                fs::remove_file(file.unwrap().path()).unwrap();
            }
            synthetic::write(&output, 3);
            before = fs::read(&output).unwrap();
            record()
        });
        assert!(failed, "it is written before the disk is full, each time");
        assert_eq!(fs::read(&output).unwrap(), before);
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1, "nothing else is left");
    });
}

/// A recording may run for days.
#[test]
fn a_full_disk_is_reported_while_the_command_goes_on() {
    needs_root!();
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=20k");
        let output = disk.path().join("b.rec");
        let options = ["-o", output.to_str().unwrap(), "--", "sleep", "120"];
        let mut recorder = Recorder::start(&[&OFTEN[..], &options].concat());
        until("word of it", || recorder.err().contains("No space left"));
        let children = format!("/proc/{0}/task/{0}/children", recorder.pid());
        assert!(!fs::read_to_string(children).unwrap().is_empty(), "the command goes on");
        recorder.signal(Signal::INT);
        assert_eq!(recorder.wait().code(), Some(1));
        assert_eq!(recorder.err().matches("No space left").count(), 1);
    });
}

#[test]
fn a_file_system_that_is_read_only_is_reported() {
    needs_root!();
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=1m");
        synthetic::write(&disk.path().join("a.rec"), 3);
        let before = fs::read(disk.path().join("a.rec")).unwrap();
        sh("mount -o remount,ro .", disk.path());
        let me = std::process::id().to_string();
        for name in ["a.rec", "new.rec"] {
            let done = run_in(disk.path(), &["record", "-o", name, "--pid", &me]);
            assert_eq!(done.status, 1);
            let said = format!("cannot write the record {name}: Read-only file system");
            assert!(done.err.contains(&said), "{}", done.err);
        }
        assert_eq!(fs::read(disk.path().join("a.rec")).unwrap(), before);
        let done = run_in(disk.path(), &["report", "heatmap", "-i", "a.rec", "-o", "a.png"]);
        let said = "cannot write a.png: Read-only file system";
        assert!(done.status == 1 && done.err.contains(said), "{}", done.err);
    });
}

#[test]
fn an_output_that_is_no_file_is_left_alone() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    sh("mkfifo pipe; mkdir dir; echo > file", dir.path());
    let me = std::process::id().to_string();
    for name in ["pipe", "dir", "/dev/full", "/dev/null"] {
        let done = run_in(dir.path(), &["record", "-o", name, "--pid", &me]);
        let said = format!("{name} exists and is no isotherm record");
        assert!(done.status == 1 && done.err.contains(&said), "{}", done.err);
        assert!(done.err.contains("choose another name"), "{}", done.err);
    }
    let done = run_in(dir.path(), &["record", "-o", "file/a.rec", "--pid", &me]);
    let said = "cannot write the record file/a.rec: Not a directory";
    assert!(done.status == 1 && done.err.contains(said), "{}", done.err);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_full_output_is_reported() {
    let dir = TempDir::new().unwrap();
    synthetic::write(&dir.path().join("a.rec"), 6);
    std::os::unix::fs::symlink("/dev/full", dir.path().join("full.png")).unwrap();
    for args in [
        &["report", "heatmap", "-o", "full.png"][..],
        &["export", "--arrow", "-o", "/dev/full"],
        &["report", "summary"],
        &["report", "summary", "--json"],
        &["report", "heatmap"],
        &["export", "--arrow"],
        &["system", "doctor"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = isotherm(args);
        if args != ["system", "doctor"] {
            command.args(["-i", "a.rec"]);
        }
        let output = command.current_dir(dir.path()).stdout(full).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(err.contains("cannot write") && err.contains("No space left"), "{args:?}: {err}");
    }
}

/// As with sudo in one's home folder: the new record can still replace the earlier one after privileges were
/// dropped.
#[test]
fn a_record_in_a_directory_of_another_user_is_replaced() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    synthetic::write(&path, 3);
    for (path, mode) in [(&path, 0o600), (&dir.path().to_owned(), 0o700)] {
        chown(path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let args = ["record", "-o", "a.rec", "--aggr", "100ms", "--duration", "1s", "--pid", &pid];
    let done = run_in(dir.path(), &args);
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(Record::read(&path).pids(), [load.pid().cast_unsigned()]);
    assert_eq!(Record::read(&dir.path().join("a.rec.old")).pids(), [4711]);
}
