//! `isotherm record -- COMMAND`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_record::FileEndReason;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::load::Load;
use crate::run::{
    QUICK, Record, Recorder, finish, has_or_skip, isotherm, needs_root, run_in, until,
    until_more_at,
};

#[test]
fn the_exit_status_is_passed_on() {
    needs_root!();
    for (script, status) in [("sleep 0.4", 0), ("sleep 0.4; exit 3", 3), ("kill -9 $$", 128 + 9)] {
        let mut recorder = Recorder::start(&["--", "sh", "-c", script]);
        assert_eq!(recorder.wait().code(), Some(status), "{script}: {}", recorder.err());
        let record = Record::read(&recorder.record());
        assert_eq!(record.end.unwrap().why, FileEndReason::TargetsGone, "{script}");
    }
}

#[test]
fn a_command_too_short_to_be_watched_is_no_failure() {
    needs_root!();
    // Whether it can be attached depends on the timing.
    for _ in 0..8 {
        for (command, status) in [("true", 0), ("false", 1)] {
            let mut recorder = Recorder::start(&["--aggr", "1s", "--", command]);
            assert_eq!(recorder.wait().code(), Some(status), "{}", recorder.err());
            assert!(recorder.err().contains("too short for a snapshot"), "{}", recorder.err());
            let record = Record::read(&recorder.record());
            assert_eq!(record.end.unwrap().why, FileEndReason::TargetsGone);
        }
    }
}

/// Found by a review: in a sandbox that refuses `kill`, isotherm waited until its command ended.
#[test]
fn a_command_that_cannot_be_killed_is_not_awaited() {
    needs_root!();
    let is_here = Command::new("strace").arg("-V").output().is_ok();
    if !has_or_skip(is_here, "a_command_that_cannot_be_killed_is_not_awaited", "strace") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "--seccomp-bpf", "-o", "calls", "-e", "trace=kill"]);
    strace.args(["-e", "inject=kill:error=EPERM", env!("CARGO_BIN_EXE_isotherm")]);
    strace.args(["record", "-o", "a.rec", "--duration", "1s", "--"]);
    strace.args(["sh", "-c", "echo $$ >pid; exec sleep 1000"]);
    let done = finish(strace.current_dir(dir.path()));
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("cannot end the command: Operation not permitted"), "{}", done.err);
}

#[test]
fn children_of_the_command_are_followed() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    let mut command = isotherm(["record"]);
    let socket = dir.path().join("c");
    command.args(QUICK).arg("-o").arg(&path).arg("--control").arg(&socket);
    command.args(["--", "sh", "-c", "\"$@\"; exit 5", "sh"]);
    Load::words(&mut command, 64, 8);
    let mut load = Load::from_command(command.stderr(Stdio::null()));
    until_more_at(&socket, 15);
    load.end(4);
    let status = load.child().wait().unwrap();
    assert_eq!(status.code(), Some(5), "that of the command, not of its child");
    let record = Record::read(&path);
    assert_eq!(record.pids().len(), 2, "{:?}", record.targets);
    assert!(record.targets[0].command.contains("sh -c"), "{:?}", record.targets);
    // It was attached before its exec, so it also has an earlier name.
    let child = record.targets.last().unwrap();
    assert!(child.command.contains("obey"), "{child:?}");
    let hot = record.snapshots.iter().flat_map(|s| &s.targets).filter(|t| t.id == child.id);
    let hot = hot.map(|t| t.bytes(&isotherm_core::Thresholds::default()).hot);
    assert!(hot.max().unwrap_or(0) >= load.hot.len() * 9 / 10);
    assert_eq!(record.end.unwrap().why, FileEndReason::TargetsGone);
}

#[test]
fn many_short_children_leave_nothing_behind() {
    needs_root!();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.25; done; echo > done; sleep 60";
    let mut recorder = Recorder::start(&["--", "sh", "-c", script]);
    recorder.until_recording();
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", recorder.pid())).unwrap().count();
    let before = descriptors();
    until("the end of the children", || recorder.dir().join("done").exists());
    until("the end of what they took", || descriptors() <= before + 4);
    let record = recorder.stop();
    // A busy machine may miss some processes that live for a quarter of a second.
    assert!(record.pids().len() >= 3, "{} were watched", record.pids().len());
}

#[test]
fn a_command_that_cannot_be_started_leaves_the_record_alone() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let sleep = run_in(dir.path(), &["record", "-o", "a.rec", "--", "sleep", "0.1"]);
    assert_eq!(sleep.status, 0, "{}", sleep.err);
    let before = fs::read(dir.path().join("a.rec")).unwrap();
    for name in ["no-such-program", "./no-such-program", "/etc/passwd", "/"] {
        let done = run_in(dir.path(), &["record", "-o", "a.rec", "--", name]);
        assert_eq!(done.status, 1, "{}", done.err);
        assert!(done.err.contains(&format!("cannot start {name}")), "{}", done.err);
    }
    assert_eq!(fs::read(dir.path().join("a.rec")).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else was written");
}

#[test]
fn a_program_that_does_not_run_ends_the_record() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("garbage");
    fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let done = run_in(dir.path(), &["record", "-o", "a.rec", "--", "./garbage"]);
    assert_eq!(done.status, 1);
    assert!(done.err.contains("cannot start ./garbage"), "{}", done.err);
    let end = Record::read(&dir.path().join("a.rec")).end.unwrap();
    assert_eq!(end.why, FileEndReason::Failed);
    assert!(end.note.contains("cannot start"), "{end:?}");
}

#[test]
fn the_duration_ends_the_command() {
    needs_root!();
    let script = "trap 'echo > asked; exit 9' TERM; while :; do sleep 0.1; done";
    let mut recorder = Recorder::start(&["--duration", "1s", "--", "sh", "-c", script]);
    assert_eq!(recorder.wait().code(), Some(0), "we ended it: its status means nothing");
    assert!(recorder.dir().join("asked").exists(), "it was not asked to end");
    let record = Record::read(&recorder.record());
    assert_eq!(record.end.as_ref().unwrap().why, FileEndReason::Stopped);
    assert!(!record.snapshots.is_empty());
    assert!(recorder.err().contains("(--duration is over)"), "{}", recorder.err());
}

#[test]
fn the_command_outlives_a_full_record_until_it_is_asked_to_end() {
    needs_root!();
    let dir = tempfile::tempdir().unwrap();
    let [metrics, socket] = ["m.prom", "socket"].map(|name| dir.path().join(name));
    let [of_metrics, of_socket] = [&metrics, &socket].map(|path| path.to_str().unwrap());
    let options = ["--max-size", "64K", "--sample", "2ms", "--aggr", "16ms"];
    let more = ["--metrics", of_metrics, "--control", of_socket, "--", "sleep", "120"];
    let mut recorder = Recorder::start(&[&options[..], &more].concat());
    until("a full record", || recorder.err().contains("has reached --max-size"));
    // Found by a review: the figures stayed, and nothing answered.
    until("the end of the service", || !metrics.exists() && !socket.exists());
    let children = format!("/proc/{0}/task/{0}/children", recorder.pid());
    assert!(!fs::read_to_string(children).unwrap().is_empty(), "the command goes on");
    let begin = Instant::now();
    recorder.signal(Signal::INT);
    assert_eq!(recorder.wait().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(Record::read(&recorder.record()).end.unwrap().why, FileEndReason::MaxSize);
}
