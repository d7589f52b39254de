//! The lake on a full disk: a small tmpfs in a mount namespace of its own.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use isotherm_fleet::{Group, Keep, Lake, LakeRow, MINUTE_MS, Rows, read};

/// The child writes the lake in this directory.
const CHILD: &str = "ISOTHERM_TEST_LAKE";
const BEGIN: i64 = 1_795_564_800_000;

fn rows(minute: i64) -> Rows {
    let group = |i| Group { host: "h".into(), cgroup: format!("/g{i}"), ..Group::default() };
    let row = |group| LakeRow { group, minute, resident_bytes: minute, ..LakeRow::default() };
    Rows { groups: (0..20).map(group).collect(), rows: (0..20).map(row).collect() }
}

#[test]
fn a_full_disk_loses_nothing_once_there_is_room_again() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return fill(dir.as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let script = "mount -t tmpfs -o size=256k none \"$0\" && exec \"$1\" --exact \
                  a_full_disk_loses_nothing_once_there_is_room_again --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(dir.path()).arg(test);
    if !rustix::process::geteuid().is_root() {
        let required = std::env::var("ISOTHERM_REQUIRE_ALL").is_ok_and(|v| v == "1");
        assert!(!required, "it requires root to mount a small disk");
        eprintln!("skipped a_full_disk_loses_nothing_once_there_is_room_again: it requires root");
        return;
    }
    assert!(command.env(CHILD, dir.path()).status().unwrap().success());
}

fn fill(dir: &Path) {
    let mut lake = Lake::open(dir, "h", Keep::default()).unwrap();
    let mut append = |n: i64| {
        let minute = BEGIN + n * MINUTE_MS;
        lake.append(minute, rows(minute))
    };
    assert!((0..50).all(|n| append(n).is_ok()));
    let others = dir.join("others");
    let mut file = fs::File::create(&others).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let failures = (50..130).filter(|n| append(*n).is_err()).count();
    assert!(failures > 60, "only {failures} minutes could not be written");
    drop(file);
    fs::remove_file(&others).unwrap();
    append(130).unwrap();
    let mut minutes = Vec::new();
    for hour in lake.stored().unwrap() {
        let rows = read(&hour.path).unwrap().rows;
        assert!(rows.iter().all(|r| r.dropped_minutes == 0));
        minutes.extend(rows.iter().map(|r| (r.minute - BEGIN) / MINUTE_MS));
    }
    minutes.sort_unstable();
    let expected: Vec<i64> = (0..=130).flat_map(|n| std::iter::repeat_n(n, 20)).collect();
    assert_eq!(minutes, expected);
}
