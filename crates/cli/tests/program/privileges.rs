//! The privileges of the recorder and of the command that it starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::CapabilitySet;

use crate::load::{Load, capabilities, status};
use crate::run::{QUICK, Recorder, isotherm, needs_root, until};

/// As `/proc/PID/status` shows it.
fn hex(set: CapabilitySet) -> String {
    format!("{:016x}", set.bits())
}

const WATCHING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PTRACE);

fn assert_all_threads_have(pid: u32, set: CapabilitySet) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let tasks: Vec<PathBuf> = tasks.map(|t| t.unwrap().path()).collect();
    assert!(!tasks.is_empty());
    let none = hex(CapabilitySet::empty());
    for task in tasks {
        // Effective, permitted, inheritable.
        assert_eq!(capabilities(&task), format!("{0} {0} {none}", hex(set)), "{task:?}");
        // Otherwise a program that it executes would get all of root's.
        assert_eq!(status(&task, "NoNewPrivs:"), "1", "{task:?}");
        // A filter refuses calls that it never makes.
        assert_eq!(status(&task, "Seccomp:"), "2", "{task:?}");
    }
}

#[test]
fn the_recorder_keeps_only_privileges_of_watching() {
    needs_root!();
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let mut recorder = Recorder::recording(&["--pid", &pid]);
    assert_all_threads_have(recorder.pid(), WATCHING);
    recorder.stop();
    let rotating = ["--pid", &pid, "--max-size", "1M", "--rotate", "2"];
    let mut recorder = Recorder::recording(&rotating);
    assert_all_threads_have(recorder.pid(), WATCHING.union(CapabilitySet::DAC_OVERRIDE));
    recorder.stop();
    // Page frames show that a page was freed and filled again.
    let mut recorder = Recorder::recording(&["--pid", &pid, "--stacks"]);
    let stacks = CapabilitySet::SYS_ADMIN.union(CapabilitySet::DAC_READ_SEARCH);
    assert_all_threads_have(recorder.pid(), WATCHING.union(stacks));
    recorder.stop();
    let mut recorder = Recorder::recording(&["--pid", &pid, "--children"]);
    assert_all_threads_have(recorder.pid(), WATCHING.union(CapabilitySet::DAC_OVERRIDE));
    recorder.stop();
}

/// Paging out files requires writing to them, and migrating requires seeing page frames.
#[test]
fn acting_keeps_the_privileges_that_its_schemes_require() {
    needs_root!();
    let load = Load::start(16, 4);
    let frames = WATCHING.union(CapabilitySet::SYS_ADMIN).union(CapabilitySet::DAC_READ_SEARCH);
    let writing = WATCHING.union(CapabilitySet::DAC_OVERRIDE);
    for (action, kept) in [("stat", WATCHING), ("migrate_cold 0", frames), ("pageout", writing)] {
        let dir = tempfile::TempDir::new().unwrap();
        std::fs::write(dir.path().join("s"), format!("4K null null null 1h null {action}"))
            .unwrap();
        let mut run = isotherm(["run", "--dry-run", "--scheme", "s", "--pid"]);
        run.arg(load.pid().to_string()).args(QUICK).current_dir(dir.path());
        let err = std::fs::File::create(dir.path().join("err")).unwrap();
        let mut run = run.stdout(Stdio::null()).stderr(err).spawn().unwrap();
        let err = || std::fs::read_to_string(dir.path().join("err")).unwrap();
        until("the first snapshot", || err().contains(" hot "));
        assert_all_threads_have(run.id(), kept);
        run.kill().unwrap();
        run.wait().unwrap();
    }
}

#[test]
fn the_command_keeps_those_of_the_user() {
    needs_root!();
    let dir = tempfile::TempDir::new().unwrap();
    let mut command = isotherm(["record"]);
    command.args(QUICK).arg("-o").arg(dir.path().join("a.rec")).arg("--");
    Load::words(&mut command, 16, 4);
    let mut load = Load::from_command(command.stderr(Stdio::null()));
    let ours = capabilities(Path::new("/proc/self"));
    assert_eq!(load.capabilities(), ours);
    let status = PathBuf::from(format!("/proc/{}", load.pid()));
    until("that it gives up the others", || capabilities(&status) != ours);
    until("all of its threads", || {
        let tasks = std::fs::read_dir(status.join("task")).unwrap();
        let mut of = tasks.map(|task| capabilities(&task.unwrap().path()));
        of.all(|of| of == capabilities(&status))
    });
    assert_all_threads_have(load.pid().cast_unsigned(), WATCHING);
    load.end(0);
    assert_eq!(load.child().wait().unwrap().code(), Some(0));
}

#[test]
fn just_these_capabilities_are_enough() {
    needs_root!();
    let load = Load::start(16, 4);
    let names = ["bpf", "perfmon", "sys_nice", "sys_ptrace"];
    let kept: String = names.iter().map(|name| format!(",+{name}")).collect();
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set=-all{kept}")).arg("--inh-caps=-all").stdin(Stdio::null());
    command.arg(env!("CARGO_BIN_EXE_isotherm")).arg("record");
    let mut recorder = Recorder::start_by(command, &["--pid", &load.pid().to_string()]);
    recorder.until_recording();
    assert!(!recorder.stop().snapshots.is_empty());
}
