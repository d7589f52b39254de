//! `isotherm run`: its targets as they come and go.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::load::Load;
use crate::run::{QUICK, copy_program, finish, isotherm, needs_root, run_in, until, wait};
use crate::schemes::{Run, first};

#[test]
fn a_target_that_ends_ends_the_run_and_so_does_ctrl_c() {
    needs_root!();
    let everything = "4K null null null null null stat";
    for killed in [true, false] {
        let mut load = Load::start(16, 4);
        let mut run = Run::new(everything, load.pid()).with(&["--log", "log"]);
        let mut child = run.start();
        until("something done", || !run.log().is_empty());
        let said = if killed {
            load.child().kill().unwrap();
            load.child().wait().unwrap();
            "all targets have ended"
        } else {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            "stopped by SIGINT"
        };
        assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
        assert!(run.err().contains(said), "{}", run.err());
    }
}

#[test]
fn exec_does_not_end_it() {
    needs_root!();
    let everything = "4K null null null null null stat";
    let mut load = Load::start(16, 4);
    let mut run = Run::new(everything, load.pid()).with(&["--log", "log"]);
    let mut child = run.start();
    until("something done", || !run.log().is_empty());
    // Lines before the load itself reports its new memory count as well.
    let seen = run.log().len();
    load.exec(24, 4);
    let is_new = |l: &Value| {
        let start = l["start"].as_str().unwrap().trim_start_matches("0x");
        load.memory.contains(u64::from_str_radix(start, 16).unwrap())
    };
    until("the new memory", || run.log().iter().skip(seen).any(is_new));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
}

#[test]
fn a_command_is_run_and_its_status_passed_on() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("s.txt"), "4K null null null null null stat").unwrap();
    let args = ["run", "--scheme", "s.txt", "--json", "--", "sh", "-c", "sleep 0.5; exit 3"];
    let done = run_in(dir.path(), &args);
    assert_eq!(done.status, 3, "{}", done.err);
    assert_eq!(first(&done)["action"], "stat");
}

#[test]
fn schemes_are_typed_beside_those_of_a_file() {
    needs_root!();
    let load = Load::start(16, 4);
    let line = "4k Max min max 0S max STAT";
    let typed = ["--scheme-line", line, "--scheme-line", "4K max min 5 1h max cold"];
    let done = Run::new("4K null null null null null stat", load.pid())
        .with(&typed)
        .with(&["--duration", "3s"])
        .finish();
    assert_eq!(done.status, 0, "{}", done.err);
    let table: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    let names = ["stat", "stat-2", "cold"];
    for (i, name) in names.into_iter().enumerate() {
        assert_eq!(table["schemes"][i]["scheme"], name);
    }
    assert!(table["schemes"][1]["tried"]["bytes"].as_u64() > Some(0), "{table}");
    let wrong = run_in(
        std::env::temp_dir().as_path(),
        &["run", "--pid", "1", "--scheme-line", line, "--scheme-line", "4K max min 5 2s max fly"],
    );
    let said = "--scheme-line number 2: line 1, column 21: `fly` is no action";
    assert!(wrong.status == 2 && wrong.err.contains(said), "{}", wrong.err);
}

/// By its name as the kernel cuts it, also for a process that comes later.
#[test]
fn processes_are_found_by_name() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("s.txt"), "4K null null null null null stat").unwrap();
    let program = dir.path().join("isotherm-test-sleeper");
    copy_program("/bin/sleep", &program);
    let sleeper = || Command::new(&program).arg("60").spawn().unwrap();
    let log = dir.path().join("log");
    let name = "isotherm-test-sleeper";
    let run = |duration| {
        let mut run = isotherm(["run", "--scheme", "s.txt", "--comm", name, "--log", "log"]);
        run.args(["--duration", duration]).args(QUICK).current_dir(dir.path());
        run
    };
    let nobody = finish(&mut run("1s"));
    assert_eq!(nobody.status, 1);
    assert!(nobody.err.contains("no process is called `isotherm-test-s`"), "{}", nobody.err);
    let mut one = sleeper();
    let mut running = run("40s").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has =
        |pid: u32| fs::read_to_string(&log).is_ok_and(|t| t.contains(&format!("\"pid\":{pid},")));
    until("the first", || has(one.id()));
    one.kill().unwrap();
    one.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut two = sleeper();
    until("the second", || has(two.id()));
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert_eq!(wait(&mut running).code(), Some(0));
    two.kill().unwrap();
    two.wait().unwrap();
}

#[test]
fn a_filter_tells_processes_apart() {
    needs_root!();
    let [one, other] = [Load::start(16, 4), Load::start(16, 4)];
    let comm = fs::read_to_string(format!("/proc/{}/comm", one.pid())).unwrap();
    let both = [one.pid(), other.pid()];
    let pids = both.map(|pid| pid.to_string());
    for (filters, want) in [
        (format!("{{ kind = {{ pid = {} }}, allow = true }}", one.pid()), &both[..1]),
        (format!("{{ kind = {{ pid = {} }} }}", one.pid()), &both[1..]),
        (format!("{{ kind = {{ comm = {:?} }}, allow = true }}", comm.trim_end()), &both),
        ("{ kind = { comm = \"nobody\" }, allow = true }".to_owned(), &[]),
    ] {
        let scheme = format!("[[scheme]]\naction = \"stat\"\nfilters = [{filters}]\n");
        let mut run = Run::of(&scheme, &["--pid", &pids[0], "--pid", &pids[1], "--log", "log"])
            .with(&["--duration", "2s"]);
        let done = finish(&mut run.command);
        assert_eq!(done.status, 0, "{}", done.err);
        let log = run.log();
        let has = |pid: &&i32| log.iter().any(|l| l["pid"] == **pid);
        assert_eq!(both.iter().filter(has).collect::<Vec<_>>(), want.iter().collect::<Vec<_>>());
    }
}
