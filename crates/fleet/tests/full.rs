//! The lake on a full disk: a small tmpfs in a mount namespace of its own.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_fleet::{DiskLimits, Group, Lake, LakeError, LakeRow, MINUTE_MS, Rows, read};

/// The child writes the lake in this directory.
const CHILD: &str = "ISOTHERM_TEST_LAKE";
const BEGIN: i64 = 1_795_564_800_000;

fn rows(minute: i64) -> Rows {
    let group = |i| Group { host: "h".into(), cgroup: format!("/g{i}"), ..Group::default() };
    let row = |group| LakeRow { group, minute, resident_bytes: minute, ..LakeRow::default() };
    Rows { groups: (0..20).map(group).collect(), rows: (0..20).map(row).collect() }
}

/// Runs `test` in a child of this process, whose directory is a disk of 256 KiB.
fn on_small_disk(name: &str, test: impl Fn(&Path)) {
    if let Some(dir) = std::env::var_os(CHILD) {
        return test(dir.as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let script =
        "mount -t tmpfs -o size=256k none \"$0\" && exec \"$1\" --exact \"$2\" --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(dir.path()).arg(this).arg(name);
    if !rustix::process::geteuid().is_root() {
        let required = std::env::var("ISOTHERM_REQUIRE_ALL").is_ok_and(|v| v == "1");
        assert!(!required, "it requires root to mount a small disk");
        eprintln!("skipped {name}: it requires root");
        return;
    }
    assert!(command.env(CHILD, dir.path()).status().unwrap().success());
}

fn append(lake: &mut Lake, n: i64) -> Result<(), LakeError> {
    let minute = BEGIN + n * MINUTE_MS;
    lake.append(minute, rows(minute))
}

/// Fills the disk.
fn fill(dir: &Path) -> PathBuf {
    let path = dir.join("others");
    let mut file = fs::File::create(&path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    path
}

/// The minutes of all rows, and the number of those that the rows report as lost.
fn stored(lake: &Lake) -> (Vec<i64>, i64) {
    let (mut minutes, mut dropped) = (Vec::new(), 0);
    for hour in lake.stored().unwrap() {
        let rows = read(&hour.path).unwrap().rows;
        dropped += rows.iter().map(|r| r.dropped_minutes).sum::<i64>();
        minutes.extend(rows.iter().map(|r| (r.minute - BEGIN) / MINUTE_MS));
    }
    minutes.sort_unstable();
    (minutes, dropped)
}

fn each(minutes: std::ops::RangeInclusive<i64>) -> Vec<i64> {
    minutes.flat_map(|n| std::iter::repeat_n(n, 20)).collect()
}

#[test]
fn a_full_disk_loses_nothing_once_there_is_room_again() {
    on_small_disk("a_full_disk_loses_nothing_once_there_is_room_again", |dir| {
        let mut lake = Lake::open(dir, "h", DiskLimits::default()).unwrap();
        assert!((0..50).all(|n| append(&mut lake, n).is_ok()));
        let others = fill(dir);
        let failures = (50..130).filter(|n| append(&mut lake, *n).is_err()).count();
        assert!(failures > 60, "only {failures} minutes could not be written");
        fs::remove_file(others).unwrap();
        append(&mut lake, 130).unwrap();
        assert_eq!(stored(&lake), (each(0..=130), 0));
    });
}

/// Found by an audit: the lake stopped for good.
#[test]
fn a_lake_that_fills_its_disk_goes_on_without_its_oldest_hours() {
    on_small_disk("a_lake_that_fills_its_disk_goes_on_without_its_oldest_hours", |dir| {
        let mut lake = Lake::open(dir, "h", DiskLimits::default()).unwrap();
        let minutes = 30 * 60;
        for n in 0..minutes {
            append(&mut lake, n).unwrap();
        }
        // The rows report all minutes that are gone, also those that made room for the last row.
        let (there, dropped) = stored(&lake);
        let first = there[0];
        assert!(first > 6 * 60 && first < 28 * 60, "the first minute is {first}");
        assert_eq!(there, each(first..=minutes - 1));
        assert_eq!(dropped, first);
    });
}

/// Found by a review: the lake stopped for good.
#[test]
fn an_hour_that_cannot_be_removed_does_not_stop_a_lake_on_a_full_disk() {
    on_small_disk("an_hour_that_cannot_be_removed_does_not_stop_a_lake_on_a_full_disk", |dir| {
        let mut lake = Lake::open(dir, "h", DiskLimits::default()).unwrap();
        assert!((0..120).all(|n| append(&mut lake, n).is_ok()));
        let path = lake.finished().unwrap().remove(0).path;
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let minutes = 20 * 60;
        let failures = (120..minutes).filter(|n| append(&mut lake, *n).is_err()).count();
        assert!(failures > 0, "the disk was not full");
        fs::remove_dir(path).unwrap();
        let (there, dropped) = stored(&lake);
        assert_eq!(there, each(there[0]..=minutes - 1));
        // Nobody knows which minutes the directory replaced.
        assert_eq!(dropped, there[0] - 60);
    });
}

/// A program that writes without end must not make the lake remove all hours within minutes.
#[test]
fn hours_stay_while_others_fill_the_disk() {
    on_small_disk("hours_stay_while_others_fill_the_disk", |dir| {
        let mut lake = Lake::open(dir, "h", DiskLimits::default()).unwrap();
        assert!((0..9 * 60).all(|n| append(&mut lake, n).is_ok()));
        for n in 9 * 60..10 * 60 {
            fill(dir);
            let _ = append(&mut lake, n);
        }
        let left = lake.finished().unwrap().len();
        assert!((4..9).contains(&left), "{left} hours");
    });
}
