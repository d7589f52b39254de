//! Memory by owner: the saved part, and the part that comes back.

use std::fs;
use std::path::{Path, PathBuf};

use isotherm_core::{AddrRange, PAGE_SIZE};
use serde_json::Value;

use crate::alone::Alone;
use crate::cgroups::{Group, mounts_or_skip, put};
use crate::load::{Load, MIB};
use crate::run::{Recorder, run_in, until};
use crate::schemes::{Run, swapped};
use crate::synthetic;

const COLD: &str = "4K null  null 5  1s null  pageout";

fn cgroups(dir: &Path, more: &[&str]) -> Value {
    let done = run_in(dir, &[&["report", "cgroups", "-i", "a.rec", "--json"], more].concat());
    assert_eq!(done.status, 0, "{}", done.err);
    done.json()
}

fn row(report: &Value, is: impl Fn(&Value) -> bool) -> &Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|row| is(row)).unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn swapped_and_refaulted_memory_is_reported_by_group() {
    let mounts = mounts_or_skip("swapped_and_refaulted_memory_is_reported_by_group");
    // If the memory controller is of version 1, its group is reported.
    let is_old = |mount: &&PathBuf| mount.join("memory.usage_in_bytes").exists();
    let Some(mount) = mounts.iter().find(is_old).or(mounts.first()) else { return };
    let Some(_alone) = Alone::with_swap(256) else { return };
    let group = Group::new(mount, "saved");
    let mut load = Load::start(64, 8);
    let (pid, below) = (load.pid(), group.0.join("below"));
    put(pid, &below);
    // Of 56 MiB that are cold, so that the last 16 MiB are out too.
    let done = Run::new(COLD, pid).finish_when("what is cold", |_| swapped(pid) >= 52 * MIB);
    assert_eq!(done.status, 0, "{}", done.err);
    let saved = swapped(pid);

    let mut recorder = Recorder::counted(&["--pid", &pid.to_string()]);
    let reported = || recorder.status()["targets"][0]["saved"].as_u64();
    until("what is saved", || reported() == Some(swapped(pid)));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    // The second half is cold, and 16 MiB of it are touched again.
    let back = AddrRange::new(load.memory.end - 16 * MIB, load.memory.end);
    load.touch(back);
    until("what is saved still", || reported() == Some(swapped(pid)));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let record = recorder.stop();
    let (first, last) = (&record.attributions[0], record.attributions.last().unwrap());
    assert!(
        first.swapped >= saved - MIB && last.swapped + 12 * MIB <= first.swapped,
        "{first:?} {last:?}"
    );
    assert_eq!(last.swapped, swapped(pid), "as the kernel says");

    let path = &*last.cgroup;
    assert!(path.ends_with("/below"), "{path}");
    let above = path.trim_end_matches("/below");
    let report = cgroups(recorder.dir(), &[]);
    let of = |label: &str| row(&report, |row| row["label"] == label);
    assert_eq!(of(path)["mean"], of(above)["mean"], "nobody else is there");
    assert_eq!(of(path)["last"], of("/")["last"]);
    assert_eq!(of(path)["last"]["saved_bytes"], last.swapped);
    let refaulted = of(path)["refaulted_bytes"].as_u64().unwrap();
    assert_eq!(refaulted, (last.major_faults - first.major_faults) * PAGE_SIZE);
    assert!((MIB..=20 * MIB).contains(&refaulted), "{refaulted}");

    let report = cgroups(recorder.dir(), &["--by", "process", "--every", "1s"]);
    let of = row(&report, |row| row["cgroup"] == path);
    assert_eq!((&of["target"], &report["by"]), (&0.into(), &"process".into()));
    let parts = of["over_time"].as_array().unwrap();
    let sum: u64 = parts.iter().filter_map(|part| part["refaulted_bytes"].as_u64()).sum();
    assert!(parts.len() >= 3 && sum == refaulted, "{sum} {parts:?}");
    let text = run_in(recorder.dir(), &["report", "cgroups", "-i", "a.rec"]);
    assert!(text.text().contains("by control group: mean"), "{}", text.text());
}

/// Each watched process has attribution from its first seconds on.
#[test]
fn all_watched_processes_are_reported() {
    let mounts = mounts_or_skip("all_watched_processes_are_reported");
    let Some(mount) = mounts.first() else { return };
    let group = Group::new(mount, "many");
    let mut load = Load::start(8, 1);
    put(load.pid(), &group.0);
    let children: Vec<u32> = (0..40).map(|_| load.fork()).collect();
    let begin = std::time::Instant::now();
    let mut recorder = Recorder::counted(&["--cgroup", group.path()]);
    // Its group is reported with the other data.
    let reported = || {
        let status = recorder.status();
        let of = status["targets"].as_array().unwrap().iter();
        of.filter(|t| t["cgroup"].as_str().is_some_and(|path| !path.is_empty())).count()
    };
    until("all of them", || reported() == children.len() + 1);
    let record = recorder.stop();
    // At its start, and at most once a second.
    let most = 2 + usize::try_from(begin.elapsed().as_secs()).unwrap();
    let reported = |pid: u32| {
        let id = record.targets.iter().find(|t| t.pid == Some(pid)).map(|t| t.id);
        record.attributions.iter().filter(|a| Some(a.target) == id).count()
    };
    for pid in children {
        assert!((1..=most).contains(&reported(pid)), "{} times of {pid}", reported(pid));
    }
    let at: Vec<_> = record.attributions.iter().map(|a| a.at).collect();
    assert!(at.is_sorted());
    load.end(0);
}

/// Each recording has a target 0, and snapshots from 0 on.
#[test]
fn records_one_behind_the_other_are_of_different_processes() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["one", "other"].map(|name| dir.path().join(name));
    synthetic::write_in("/one", 9000, &a, 5);
    synthetic::write_in("/other", 70_000, &b, 3);
    let both = [a, b].map(|path| fs::read(path).unwrap()).concat();
    fs::write(dir.path().join("a.rec"), both).unwrap();
    let report = cgroups(dir.path(), &[]);
    let of = |label: &str| row(&report, |row| row["label"] == label);
    let refaulted = |label| of(label)["refaulted_bytes"].as_u64().unwrap();
    let each = ["/one", "/other", "/"].map(refaulted);
    assert_eq!(each, [4, 2, 6].map(|pages: u64| pages * PAGE_SIZE));
    assert_eq!(of("/one")["last"]["resident_bytes"], 0);
    assert_eq!(of("/")["last"], of("/other")["last"]);
}
