//! Pid namespaces: watched from outside, and from inside.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::load::{Load, MIB};
use crate::looks::found;
use crate::run::{QUICK, Record, Recorder, finish, isotherm, needs_root, until};

/// A command that runs the rest of its command line as process 1 of a pid namespace, with a /proc of its own
/// or without.
fn container(own_proc: bool) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork"]).args(own_proc.then_some("--mount-proc"));
    command
}

/// The first child of a process.
fn child_of(pid: i32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_process_in_a_container_is_watched_from_outside() {
    needs_root!();
    let mut starter = container(true);
    Load::words(&mut starter, 64, 16);
    let mut load = Load::from_command(&mut starter);
    let inside = child_of(load.pid());
    let mut alone = Recorder::counted(&["--pid", &inside.to_string()]);
    let mut all = Recorder::counted(&["--pid", &load.pid().to_string(), "--children"]);
    load.fork();
    alone.until_more(30);
    let record = alone.stop();
    assert_eq!(record.pids(), [inside], "by its pid out here");
    assert!(record.targets[0].command.contains("program"), "{:?}", record.targets);
    assert!(found(&record, &load, 10.0) > 14 * MIB);
    // The process that started it, the process itself, and its child.
    until("all three", || all.watched().len() == 3);
    let record = all.stop();
    assert_eq!(record.pids()[..2], [load.pid().cast_unsigned(), inside]);
    assert_eq!(record.pids().len(), 3, "{:?}", record.targets);
}

#[test]
fn a_recorder_in_a_container_watches_the_right_process() {
    needs_root!();
    for way in ["bpf", "bpf-probe", "bpf-iter", "clear_refs"] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("a.rec");
        let mut command = container(true);
        command.arg(env!("CARGO_BIN_EXE_isotherm")).arg("record").args(QUICK);
        command.args(["--look", way, "--duration", "8s", "-o"]).arg(&path).arg("--");
        Load::words(&mut command, 64, 16);
        let mut load = Load::from_command(command.stderr(Stdio::null()));
        assert_eq!(load.child().wait().unwrap().code(), Some(0));
        let record = Record::read(&path);
        assert!(record.pids()[0] < 100, "{way}: {:?}", record.targets);
        // In another process no hot memory would be found.
        let hot = found(&record, &load, 10.0);
        assert!(hot > 8 * MIB, "{way}: {hot} bytes found hot");
    }
}

/// Its pids belong to another namespace: there, 1 is not the init of the machine.
#[test]
fn a_proc_of_another_namespace_is_refused() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let refused = |args: &[&str], what: &str| {
        let mut command = container(false);
        command.arg(isotherm::<&str>([]).get_program()).args(args).stdin(Stdio::null());
        let done = finish(command.current_dir(dir.path()));
        assert_eq!(done.status, 1, "{}", done.err);
        assert!(format!("{}{}", done.text(), done.err).contains(what), "{}", done.err);
        assert!(!Path::new(&dir.path().join("isotherm.rec")).exists());
    };
    let said = "mount it again";
    for way in ["bpf", "clear_refs", "smaps"] {
        refused(&["record", "--pid", "1", "--look", way, "--duration", "1s"], said);
    }
    refused(
        &["system", "doctor"],
        "FAILS   way to look: smaps\n        /proc belongs to another pid namespace",
    );
}
