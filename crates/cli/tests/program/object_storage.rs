//! A lake in object storage, from the commands that write it to the report: moto, in a process of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use isotherm_fleet::{DiskLimits, Group, Lake, LakeRow, MINUTE_MS, Rows, read};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::agent::files;
use crate::kill_on_drop::KillOnDrop;
use crate::load::Load;
use crate::moto::{Moto, free_port};
use crate::python::python_with;
use crate::run::{finish, isotherm, needs_root, until, wait};

/// A whole day in November 2026.
const DAY: i64 = 1_793_577_600_000;
/// Puts all files of a folder, if it gets one, into a new bucket.
const PUT: &str = "
import os, pathlib, sys
import boto3
s3 = boto3.client('s3', endpoint_url=os.environ['AWS_ENDPOINT'])
s3.create_bucket(Bucket='lake')
root = pathlib.Path(sys.argv[1])
for path in root.rglob('*.parquet'):
    s3.upload_file(str(path), 'lake', f'old/{path.relative_to(root)}')
";

/// The commands that write rows, with the names of their hosts.
const WRITERS: [(&str, &[&str]); 4] = [
    ("agent", &["agent", "--control", "none"]),
    ("reclaim", &["reclaim", "--dry-run", "--control", "none"]),
    ("record", &["record", "-o", "a.rec"]),
    ("run", &["run", "--scheme-line", "4K max min max min max stat"]),
];

/// Gives a command the place and the credentials of the server.
fn reach(command: &mut Command, port: u16) -> &mut Command {
    for (name, value) in
        [("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("REGION", "us-east-1")]
    {
        command.env(format!("AWS_{name}"), value);
    }
    command.env("AWS_ENDPOINT", format!("http://127.0.0.1:{port}")).env("AWS_ALLOW_HTTP", "true")
}

/// Two minutes of two hosts, on a day that has ended.
fn old_lake(dir: &Path) {
    for host in ["a", "b"] {
        let mut lake = Lake::open(dir, host, DiskLimits::default()).unwrap();
        for minute in [DAY, DAY + MINUTE_MS] {
            let group = Group { host: host.into(), cgroup: "/g".into(), ..Group::default() };
            let row = LakeRow {
                minute,
                resident_bytes: 1 << 30,
                host_bytes: 1 << 32,
                snapshots: 1,
                ..LakeRow::default()
            };
            lake.append(minute, Rows { groups: vec![group], rows: vec![row] }).unwrap();
        }
    }
}

#[test]
fn a_lake_in_object_storage_is_written_copied_and_answered() {
    needs_root!();
    let Some(python) = python_with("moto.server", "moto[server]") else { return };
    let Some(duckdb) = python_with("duckdb", "duckdb==2.0.1") else { return };
    let dir = TempDir::new().unwrap();
    let port = free_port();
    let _server = Moto::start(&python, port);
    old_lake(&dir.path().join("old"));
    let mut put = Command::new(&python);
    let put = reach(put.args(["-c", PUT]).arg(dir.path().join("old")), port);
    assert!(put.status().unwrap().success());

    // Each command keeps rows in its spool until it has put them.
    let load = Load::start(16, 4);
    let pid = load.pid().to_string();
    let mut writers = WRITERS.map(|(host, args)| {
        let mut command = isotherm(args);
        command.args(["--pid", &pid, "--lake", "s3://lake/live", "--host", host, "--spool", host]);
        reach(command.current_dir(&dir), port)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(KillOnDrop)
            .unwrap()
    });
    let spooled = WRITERS.map(|(host, _)| dir.path().join(host));
    until("all have rows", || spooled.iter().all(|spool| !files(spool).is_empty()));
    for writer in &mut writers {
        kill_process(Pid::from_child(&writer.0), Signal::TERM).unwrap();
        assert_eq!(wait(&mut writer.0).code(), Some(0));
    }
    let spooled = files(&spooled[0]).remove(0);
    let day = spooled.iter().find_map(|part| part.to_str()?.strip_prefix("date=")).unwrap();
    let copied = |lake: &str, to: &str, more: &[&str]| {
        let mut command = isotherm(["fleet", "compact", "--lake", lake, "--to", to]);
        finish(reach(command.args(more).current_dir(&dir), port))
    };
    let done = copied("s3://lake/live", "live", &["--date", day]);
    assert_eq!(done.status, 0, "{}", done.err);
    // Found by a review: a day or a prefix that is not there was a success.
    assert_eq!(copied("s3://lake/live", "none", &["--date", "2020-01-01"]).status, 2);
    assert_eq!(copied("s3://lake/none", "none", &[]).status, 2);
    let part = dir.path().join(format!("live/date={day}/part-0001.parquet"));
    let Rows { groups, rows } = read(&part).unwrap();
    let watched = rows.iter().filter(|row| row.resident_bytes >= 16 << 20 && row.snapshots > 0);
    let hosts = watched.map(|row| &*groups[row.group as usize].host);
    assert!(hosts.collect::<BTreeSet<_>>().into_iter().eq(WRITERS.map(|w| w.0)), "{rows:?}");

    let reporter = |more: &[&str]| {
        let mut path = duckdb.parent().unwrap_or(Path::new("")).as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = isotherm(["fleet", "report", "--json"]);
        reach(command.args(more).current_dir(&dir).env("PATH", path), port);
        command
    };
    let report = |more: &[&str]| finish(&mut reporter(more));
    // The running day too, through a copy that does not remain.
    let temporary = TempDir::new().unwrap();
    let mut command = reporter(&["--lake", "s3://lake/live"]);
    let done = finish(command.env("TMPDIR", temporary.path()));
    assert_eq!(done.status, 0, "{}", done.err);
    let answers: Value = serde_json::from_str(done.text()).unwrap();
    assert_eq!(answers["lake"], "s3://lake/live");
    let hosts = answers["answers"]["hosts"].as_array().unwrap().iter();
    let hosts: BTreeSet<_> = hosts.map(|row| row["host"].as_str().unwrap()).collect();
    assert!(hosts.into_iter().eq(WRITERS.map(|w| w.0)), "{answers}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    // Or through a copy, which the next report uses again.
    for said in ["2026-11-02: 4 rows of 2 hosts", ""] {
        let done = report(&["--lake", "s3://lake/old", "--copy", "copy"]);
        assert_eq!(done.status, 0, "{}", done.err);
        assert!(done.err.contains(said), "{}", done.err);
        assert_eq!(done.err.contains("rows of"), !said.is_empty(), "{}", done.err);
        let answers: Value = serde_json::from_str(done.text()).unwrap();
        assert_eq!(answers["answers"]["hosts"].as_array().map(Vec::len), Some(2), "{answers}");
    }
    for (more, status, said) in [
        (&["--lake", "s3://lake/none"][..], 1, "s3://lake/none has no Parquet files"),
        (&["--lake", "old", "--copy", "copy"], 2, "leave it out"),
        (&["--lake", "s3://lake/live", "--copy", "new"], 2, "first day"),
        (&["--lake", "s3://none/old", "--copy", "new"], 1, "list"),
    ] {
        let done = report(more);
        assert_eq!(done.status, status, "{more:?}: {}", done.err);
        assert!(done.err.contains(said), "{more:?}: {}", done.err);
    }
}
