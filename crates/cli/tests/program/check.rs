//! `isotherm record --check`, and the memory of reports.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::long_record;
use crate::report::sample;
use crate::run::{finish, run_in};

#[test]
fn a_real_record_is_sound() {
    let Some(sample) = sample("a_real_record_is_sound") else { return };
    let done = run_in(&sample.dir, &["record", "--check", "a.rec"]);
    let said = format!("a.rec is sound: {} snapshots", sample.record.snapshots.len());
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{}", done.text());
    assert!(done.text().starts_with(&said), "{}", done.text());
}

#[test]
fn damage_and_a_missing_end_are_distinguished() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    long_record::write(&path, 30, 50).unwrap();
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

/// 360,000 regions need 40 MB in memory. The kernel's figure of a process's maximum resident memory includes
/// that of its parent, so the test limits the memory instead.
#[test]
fn memory_does_not_grow_with_the_record() {
    const LIMIT_KIB: u32 = 28 << 10;
    let dir = TempDir::new().unwrap();
    long_record::write(&dir.path().join("isotherm.rec"), 360, 1000).unwrap();
    let limited = format!("ulimit -d {LIMIT_KIB} && exec \"$@\"");
    for args in [
        &["report", "summary"][..],
        &["report", "heatmap", "-o", "a.png"],
        &["report", "wss"],
        &["report", "regions", "-o", "a.svg"],
        &["report", "access"],
        &["report", "raw"],
        &["report", "raw", "--json"],
        &["record", "--check", "isotherm.rec"],
        &["edit", "isotherm.rec", "--aggr", "4s", "-o", "b.rec"],
        &["export", "--format", "damo", "-o", "damon.data"],
        &["import", "damon.data", "-o", "c.rec"],
        &["export", "--format", "parquet", "-o", "tables"],
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_isotherm")]).args(args);
        let done = finish(command.current_dir(dir.path()));
        assert_eq!(done.status, 0, "{args:?}: {}", done.err);
    }
}
