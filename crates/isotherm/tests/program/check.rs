//! `isotherm record --check`, and what reports take of memory.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;

use crate::report::sample;
use crate::run::{isotherm, run_in};
use crate::{synthetic, usage};

const MIB: u64 = 1 << 20;

#[test]
fn a_real_record_is_sound() {
    let Some(sample) = sample("a_real_record_is_sound") else { return };
    let done = run_in(&sample.dir, &["record", "--check", "a.rec"]);
    let said = format!("a.rec is sound: {} snapshots", sample.record.snapshots.len());
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{}", done.text());
    assert!(done.text().starts_with(&said), "{}", done.text());
}

#[test]
fn damage_and_a_missing_end_are_told_apart() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    synthetic::write(&path, 30, 50).unwrap();
    let check = || run_in(dir.path(), &["record", "--check", "a.rec"]);
    assert_eq!(check().status, 0, "{}", check().text());

    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    let torn = check();
    assert!(torn.status == 0 && torn.text().contains("is sound"), "{}", torn.text());
    assert!(torn.err.contains("breaks off"), "{}", torn.err);

    let mut flipped = bytes;
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(&path, &flipped).unwrap();
    let damaged = check();
    assert_eq!(damaged.status, 1);
    assert!(damaged.text().contains("a.rec, byte "), "{}", damaged.text());
    assert!(damaged.text().contains("checksum"), "{}", damaged.text());
}

#[test]
fn a_check_records_nothing() {
    let dir = TempDir::new().unwrap();
    let done = run_in(dir.path(), &["record", "--check", "a.rec", "--pid", "1"]);
    assert!(done.status == 2 && done.err.contains("cannot be used with"), "{}", done.err);
    let done = run_in(dir.path(), &["record", "--check", "a.rec"]);
    assert!(done.status == 1 && done.err.contains("a.rec"), "{}", done.err);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Most bytes resident, of a report on a record of so many snapshots of 1000 regions.
fn peak(dir: &Path, record: &str, args: &[&str]) -> u64 {
    let mut command = isotherm(args);
    if args[0] == "report" {
        command.args(["-i", record]);
    } else {
        command.arg(record);
    }
    let run = usage::run(command.current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()));
    let used = run.unwrap();
    assert!(used.status.success(), "{args:?}");
    used.peak_rss
}

/// 300,000 regions more are 34 MB as they are in memory.
#[test]
fn memory_does_not_grow_with_the_record() {
    let dir = TempDir::new().unwrap();
    synthetic::write(&dir.path().join("short.rec"), 60, 1000).unwrap();
    synthetic::write(&dir.path().join("long.rec"), 360, 1000).unwrap();
    for args in [
        &["report", "summary"][..],
        &["report", "heatmap", "-o", "a.png"],
        &["report", "wss"],
        &["report", "regions", "-o", "a.svg"],
        &["report", "access"],
        &["report", "raw"],
        &["report", "raw", "--json"],
        &["record", "--check"],
    ] {
        let (short, long) =
            (peak(dir.path(), "short.rec", args), peak(dir.path(), "long.rec", args));
        assert!(long < short + 12 * MIB, "{args:?}: {short}, then {long} bytes");
        assert!(long < 150 * MIB, "{args:?}: {long} bytes");
    }
}
