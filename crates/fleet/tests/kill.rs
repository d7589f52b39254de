//! The lake survives SIGKILL at any moment: no minute is there twice, and none that was written is missing.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use isotherm_fleet::{DiskLimits, Group, Lake, LakeRow, MINUTE_MS, Rows, read};

/// The child writes the lake in this directory.
const CHILD: &str = "ISOTHERM_TEST_LAKE";
const GROUPS: u32 = 50;
const KILLS: u64 = 200;
/// A whole minute in November 2026.
const BEGIN: i64 = 1_795_564_800_000;

fn rows(minute: i64) -> Rows {
    let group = |i| Group { host: "h".into(), cgroup: format!("/g{i}"), ..Group::default() };
    let row = |group| LakeRow {
        group,
        minute,
        resident_bytes: minute ^ i64::from(group),
        ..LakeRow::default()
    };
    Rows { groups: (0..GROUPS).map(group).collect(), rows: (0..GROUPS).map(row).collect() }
}

/// Writes minute after minute, and prints each one that is written.
fn write(dir: &Path) {
    let mut lake = Lake::open(dir, "h", DiskLimits::default()).unwrap();
    let mut out = std::io::stdout();
    for n in 0.. {
        // It begins a little too early: an agent that starts again within a minute does so too.
        let minute =
            lake.last_minute().map_or(BEGIN, |last| if n == 0 { last } else { last + MINUTE_MS });
        lake.append(minute, rows(minute)).unwrap();
        writeln!(out, "written {minute}").unwrap();
    }
}

#[test]
fn a_kill_loses_at_most_the_minute_under_way() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return write(dir.as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let mut seed = 1_u64;
    let mut written = None;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_kill_loses_at_most_the_minute_under_way", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let minute = |line: &str| line.strip_prefix("written ").map(|m| m.parse::<i64>().unwrap());
        // The moment is random from the first minute on.
        let first = lines.by_ref().map(Result::unwrap).find_map(|line| minute(&line));
        assert!(first.is_some(), "the child has ended");
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::sleep(Duration::from_micros((seed >> 33) % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        // The last line may be torn.
        let all: Vec<String> = lines.map_while(Result::ok).collect();
        let whole = all
            .iter()
            .filter_map(|line| minute(line))
            .filter(|m| m % MINUTE_MS == 0 && *m >= BEGIN);
        written = whole.max().or(first).max(written);
        check(dir.path(), written.unwrap(), kill);
    }
}

/// Reads all files, and checks that all minutes up to `written`, and at most one more, are there once.
fn check(dir: &Path, written: i64, kill: u64) {
    let lake = Lake::open(dir, "h", DiskLimits::default()).unwrap();
    let hours = lake.stored().unwrap();
    // The ones before are sorted, and no longer change.
    let last = hours.len().saturating_sub(2);
    let from = if kill + 1 == KILLS { 0 } else { last };
    let mut minutes: Vec<i64> = Vec::new();
    for hour in &hours[from..] {
        let rows = read(&hour.path).unwrap();
        assert!(
            rows.rows.iter().all(|r| r.resident_bytes == r.minute ^ i64::from(group(&rows, r)))
        );
        minutes.extend(rows.rows.iter().map(|r| r.minute));
    }
    minutes.sort_unstable();
    let end = minutes.last().copied().unwrap();
    assert!(end == written || end == written + MINUTE_MS, "kill {kill}: {end} is not {written}");
    let begin = hours[from].start;
    let groups = usize::try_from(GROUPS).unwrap();
    let expected = (0..).map(|n| begin + n * MINUTE_MS).take_while(|m| *m <= end);
    let expected: Vec<i64> = expected.flat_map(|m| std::iter::repeat_n(m, groups)).collect();
    assert_eq!(minutes, expected, "kill {kill}");
}

fn group(rows: &Rows, row: &LakeRow) -> u32 {
    let path = &rows.groups[row.group as usize].cgroup;
    path.strip_prefix("/g").unwrap().parse().unwrap()
}
