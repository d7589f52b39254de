//! `isotherm run`, while its targets and its resources go away.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::alone::Alone;
use crate::cgroups::{Group, mounts_or_skip, put};
use crate::disk::{mount, with_own_mounts};
use crate::load::{Load, MIB};
use crate::run::{needs_root, run_in, until, until_still, wait};
use crate::schemes::{Run, applied, applied_in, swapped};

const ALL: &str = "4K null null null null null pageout";
const EVERYTHING: &str = "4K null null null null null stat";
/// Number of pages with words that are checked.
const PAGES: u64 = 2000;

fn acted(log: &[Value]) -> impl Iterator<Item = &Value> {
    log.iter().filter(|line| line["outcome"] == "acted")
}

/// The target maps, moves, drops and unmaps memory thousands of times a second, and checks words at the same time.
#[test]
fn a_target_whose_mappings_come_and_go_loses_nothing() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let mut load = Load::start(32, 4);
    load.churn();
    load.check_words(PAGES, 100);
    let before = load.changes();
    let mut run = Run::new(ALL, load.pid()).with(&["--log", "log"]);
    let done = run.finish_when("many changes, and more than is checked", |log| {
        load.changes() - before >= 3000 && applied_in(log) > PAGES * 4096
    });
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(applied(&done) > PAGES * 4096, "{}", done.text());
    until("the last word", || load.wrong_words().is_some_and(|wrong| wrong == 0));
}

#[test]
fn a_target_that_becomes_another_program_and_ends_while_acted_on_is_no_error() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let mut load = Load::start(32, 4);
    let mut run = Run::new(ALL, load.pid()).with(&["--log", "log"]);
    let mut child = run.start();
    // Counted before the program begins: on a busy machine all of its memory may be out before this test goes on.
    let mut seen = 0;
    let something_done = |seen: usize| {
        until("something done", || acted(&run.log()[seen..]).any(|l| l["applied"] != 0));
    };
    for size in [24, 40, 16] {
        something_done(seen);
        seen = run.log().len();
        load.exec(size, 4);
    }
    something_done(seen);
    load.child().kill().unwrap();
    load.child().wait().unwrap();
    assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
    assert!(run.err().contains("all targets have ended"), "{}", run.err());
    let known = ["gone", "busy"];
    let odd =
        acted(&run.log()).find(|l| l["why"].as_str().is_some_and(|w| !known.contains(&w))).cloned();
    assert_eq!(odd, None);
}

/// A scheme that finds no room rests for longer than this test runs.
#[test]
fn swap_that_fills_up_is_counted_and_not_tried_over_and_over() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(8) else { return };
    let load = Load::start(48, 4);
    let mut run = Run::new(ALL, load.pid()).with(&["--log", "log"]);
    let mut child = run.start();
    let in_vain = |l: &Value| l["why"] == "no_room" && l["applied"] == 0;
    until("full swap", || run.log().iter().any(in_vain));
    // After the rest of that step.
    until_still("a rest", Duration::from_secs(3), || run.log().len());
    let log = run.log();
    let starts: BTreeSet<&str> =
        log.iter().filter(|l| in_vain(l)).map(|l| l["start"].as_str().unwrap()).collect();
    assert_eq!(log.iter().filter(|l| in_vain(l)).count(), starts.len(), "each was tried once");
    let sum = |key: &str| log.iter().map(|l| l[key].as_u64().unwrap()).sum::<u64>();
    assert!(sum("tried") > sum("applied"), "what failed is counted");
    let out = swapped(load.pid());
    assert!((4 * MIB..=8 * MIB).contains(&out), "{out} of 8 MiB of swap are used");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
}

#[test]
fn a_dry_run_without_swap_says_so_and_goes_on() {
    needs_root!();
    let Some(_alone) = Alone::without_swap() else { return };
    let load = Load::start(16, 4);
    let done = Run::new(ALL, load.pid()).with(&["--dry-run", "--duration", "2s"]).finish();
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("the action is not possible here") && done.err.contains("no swap"));
    assert!(applied(&done) >= 8 * MIB, "{}", done.text());
}

/// The first scheme acts on the memory, and the second does not in the same step. Memory that one reads back
/// is not paged out by the other as long as its heat does not change.
#[test]
fn schemes_that_want_the_same_do_not_chase_each_other() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 4);
    let both = "4K null null 5 1s null pageout\n4K null null 5 1s null willneed\n";
    let mut run = Run::new(both, load.pid()).with(&["--log", "log", "--passed"]);
    let taken = |l: &Value| l["scheme"] == "willneed" && l["why"] == "taken";
    let gone = |log: &[Value]| log.iter().any(taken) && applied_in(log) >= 32 * MIB;
    let mut since = None;
    let done = run.finish_when("what is wanted by both", |log| {
        since = since.or_else(|| gone(log).then(Instant::now));
        since.is_some_and(|since| since.elapsed() > Duration::from_secs(3))
    });
    assert_eq!(done.status, 0, "{}", done.err);
    let log = run.log();
    let out = applied(&done);
    // Twice, if its heat seems to change once. A chase would take all of it several times a second.
    assert!((32 * MIB..=150 * MIB).contains(&out), "{out} bytes went of 44 MiB: {}", done.text());
    let wrong = log.iter().find(|l| l["scheme"] == "pageout" && l["why"] == "taken");
    assert_eq!(wrong, None, "nobody is before it");
}

/// No command is started in vain, and the reason is the only output.
#[test]
fn a_figure_that_cannot_be_read_starts_no_command() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let goal =
        |goal: &str| format!("[[scheme]]\naction = \"stat\"\n[scheme.quota]\ngoals = [{goal}]\n");
    for (target, said) in [
        ("{ stalled = { target = \"1ms\", of = \"/no/such\" } }", "no control group"),
        ("{ refaults = { target = \"1%\", of = \"/no/such\" } }", "no control group"),
        ("{ file = { path = \"/no/such\", target = 1 } }", "cannot read /no/such"),
    ] {
        fs::write(dir.path().join("s.toml"), goal(target)).unwrap();
        for dry in [&[][..], &["--dry-run"]] {
            let args = [&["run", "--scheme", "s.toml"], dry, &["--", "sh", "-c", "echo > started"]];
            let done = run_in(dir.path(), &args.concat());
            assert_eq!(done.status, 1, "{}", done.err);
            assert!(done.err.contains(said) && done.err.contains("scheme `stat`"), "{}", done.err);
            assert!(!dir.path().join("started").exists(), "{target}");
        }
    }
}

/// As with PSI switched off: groups of version 1 have no such file.
#[test]
fn pressure_that_the_kernel_does_not_count_is_refused() {
    for mount in mounts_or_skip("pressure_that_the_kernel_does_not_count_is_refused") {
        let group = Group::new(&mount, "psi");
        if group.0.join("memory.pressure").exists() {
            continue;
        }
        let load = Load::start(16, 4);
        put(load.pid(), &group.0);
        for of in ["targets", group.path()] {
            let marks = format!(
                "[[scheme]]\naction = \"stat\"\n[scheme.watermarks]\nmetric = \"stalled\"\nof = {of:?}\n\
                 high = 3\nmid = 2\nlow = 1\n"
            );
            let done = Run::new(&marks, load.pid()).finish();
            assert_eq!(done.status, 1, "{}", done.err);
            assert!(done.err.contains("stalls on memory cannot be read"), "{}", done.err);
        }
    }
}

#[test]
fn a_group_that_all_leave_is_waited_for_and_one_that_is_removed_ends_it() {
    for mount in
        mounts_or_skip("a_group_that_all_leave_is_waited_for_and_one_that_is_removed_ends_it")
    {
        let group = Group::new(&mount, "run");
        let (leaves, mut comes) = (Load::start(16, 4), Load::start(16, 4));
        put(leaves.pid(), &group.0.join("below"));
        let mut run = Run::of(EVERYTHING, &["--cgroup", group.path()]).with(&["--log", "log"]);
        let mut child = run.start();
        let has = |log: &[Value], load: &Load| log.iter().any(|l| l["pid"] == load.pid());
        until("the first", || has(&run.log(), &leaves));
        put(leaves.pid(), &mount);
        // No process is left.
        until_still("that it has left", Duration::from_millis(1500), || run.log().len());
        let seen = run.log().len();
        put(comes.pid(), &group.0);
        until("the second", || has(&run.log(), &comes));
        assert!(!has(&run.log()[seen..], &leaves), "it has left");
        comes.end(0);
        comes.child().wait().unwrap();
        group.remove();
        assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
        assert!(run.err().contains("all targets have ended"), "{}", run.err());
    }
}

/// The group belongs to another process.
#[test]
fn a_goal_whose_group_goes_away_rests() {
    for mount in mounts_or_skip("a_goal_whose_group_goes_away_rests") {
        let group = Group::new(&mount, "goal");
        if !["memory.current", "memory.usage_in_bytes"].iter().any(|f| group.0.join(f).exists()) {
            continue;
        }
        let (load, mut inside) = (Load::start(16, 4), Load::start(16, 4));
        put(inside.pid(), &group.0);
        // Its earlier memory does not belong to the group.
        inside.exec(16, 4);
        let goal = format!(
            "[[scheme]]\naction = \"stat\"\n[scheme.quota]\nreset = \"100ms\"\n\
             goals = [{{ resident = {{ target = \"4K\", of = {:?} }} }}]\n",
            group.path()
        );
        let pid = load.pid().to_string();
        let who = ["--pid", &pid, "--log", "log"];
        let mut run = Run::of(&goal, &who);
        let mut child = run.start();
        for _ in 0..3 {
            let seen = run.log().len();
            until("something done", || run.log().len() > seen);
        }
        inside.end(0);
        inside.child().wait().unwrap();
        group.remove();
        assert!(!group.0.exists());
        until_still("a rest", Duration::from_millis(1500), || run.log().len());
        assert!(child.try_wait().unwrap().is_none(), "{}", run.err());
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(wait(&mut child).code(), Some(0), "{}", run.err());
    }
}

#[test]
fn a_disk_that_fills_up_with_the_log_ends_the_run_and_is_complete() {
    needs_root!();
    with_own_mounts(|| {
        let disk = TempDir::new().unwrap();
        mount(disk.path(), "size=64k");
        let path = disk.path().join("log");
        let mut load = Load::start(16, 4);
        let options = ["--log", path.to_str().unwrap(), "--passed", "--duration", "1h"];
        let done = Run::new(EVERYTHING, load.pid()).with(&options).finish();
        assert_eq!(done.status, 1, "{}", done.err);
        assert_eq!(done.err.matches("cannot be written").count(), 1, "{}", done.err);
        assert!(done.err.contains("No space left"), "{}", done.err);
        let text = fs::read_to_string(&path).unwrap();
        let (whole, _) = text.rsplit_once('\n').unwrap();
        let lines: Vec<Value> =
            whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() > 50, "{} lines in 64 KiB", lines.len());
        assert!(load.child().try_wait().unwrap().is_none(), "the target is no part of it");
    });
}
