//! `isotherm agent` on real processes, with its rows read back.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use isotherm_fleet::{Rows, read};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::alone::Alone;
use crate::load::Load;
use crate::reclaim::Service;
use crate::run::{isotherm, needs_root, run_in, status_at, until, wait};
use crate::schemes::swapped;

/// The files of a lake.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let below = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = below.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    all.filter(|path| path.ends_with("rows.parquet")).collect()
}

#[test]
fn a_minute_becomes_a_row_for_each_group() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let (lake, socket) = (dir.path().join("lake"), dir.path().join("socket"));
    let load = Load::start(64, 8);
    let pid = load.pid().to_string();
    let mut agent = isotherm(["agent", "--lake", lake.to_str().unwrap(), "--host", "a/b"])
        .args(["--pid", &pid, "--command-lines", "--control", socket.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Without the option, command lines stay on this host.
    let plain = dir.path().join("plain");
    let silent = ["agent", "--lake", plain.to_str().unwrap(), "--pid", &pid, "--control", "none"];
    let mut silent = isotherm(silent).stderr(Stdio::null()).spawn().unwrap();
    until("there are rows", || !files(&lake).is_empty() && !files(&plain).is_empty());
    kill_process(Pid::from_child(&silent), Signal::TERM).unwrap();
    assert_eq!(wait(&mut silent).code(), Some(0));
    let Rows { groups, rows } = read(&files(&plain).remove(0)).unwrap();
    assert_eq!((rows.is_empty(), groups[0].command.as_str()), (false, ""));
    assert_eq!(status_at(&socket).unwrap()["targets"][0]["pid"], load.pid());
    // A second agent would replace its file.
    let second = ["agent", "--lake", lake.to_str().unwrap(), "--host", "a/b", "--control", "none"];
    let second = run_in(dir.path(), &second);
    assert_eq!(second.status, 1);
    assert!(second.err.contains("another isotherm writes the rows of a_b"), "{}", second.err);
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert_eq!(wait(&mut agent).code(), Some(0));
    let mut log = String::new();
    agent.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("ran ") && !log.contains(" regions "), "{log}");
    assert!(dir.path().join("socket.ages.json").exists(), "the next agent goes on with the ages");
    let path = files(&lake).remove(0);
    assert!(path.parent().unwrap().ends_with("host=a_b"), "{}", path.display());
    let Rows { groups, rows } = read(&path).unwrap();
    let (row, group) = (rows[0], &groups[rows[0].group as usize]);
    assert_eq!(group.host, "a/b");
    assert!(!group.service.is_empty() && !group.cgroup.is_empty() && !group.command.is_empty());
    let mib = |bytes: i64| bytes >> 20;
    assert!((64..100).contains(&mib(row.resident_bytes)), "{row:?}");
    let parts = row.hot_bytes + row.warm_bytes + row.cold_bytes + row.unknown_bytes;
    assert_eq!(row.resident_bytes, parts, "{row:?}");
    assert!(row.snapshots > 0 && row.own_cpu_us > 0 && row.host_bytes > row.resident_bytes);
    assert_eq!((row.saved_bytes, row.minute % 60_000), (None, 0));
}

/// By the rows and by the kernel. The sizes of a row are means of its minute, and `saved_bytes` is of its end.
#[test]
fn rows_have_what_was_paged_out_and_what_is_saved() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    let load = Load::start(48, 8);
    let mut command = isotherm(["reclaim", "--pages", "--min-age", "5s", "--lake", "lake"]);
    command.args(["--watermarks", "none", "--quota", "none", "--control", "c/sock"]);
    command.args(["--pid", &load.pid().to_string()]);
    let service = Service::by_command(command, TempDir::new().unwrap());
    let lake = service.dir.path().join("lake");
    let rows = || files(&lake).iter().flat_map(|path| read(path).unwrap().rows).collect::<Vec<_>>();
    until("a row has what is saved", || rows().iter().any(|row| row.saved_bytes > Some(0)));
    let (rows, in_swap) = (rows(), i64::try_from(swapped(load.pid())).unwrap());
    let paged_out: i64 = rows.iter().filter_map(|row| row.paged_out_bytes).sum();
    let row = rows.iter().find(|row| row.saved_bytes > Some(0)).unwrap();
    let saved = row.saved_bytes.unwrap();
    assert!(saved <= in_swap && saved <= paged_out, "{in_swap} in swap: {rows:?}");
    assert!(row.swapped_bytes > 0 && row.swapped_bytes <= in_swap, "{in_swap} in swap: {rows:?}");
}

#[test]
fn a_lake_is_required() {
    let dir = TempDir::new().unwrap();
    for (args, error) in [
        (&["agent"][..], "--lake"),
        (&["agent", "--lake", "ftp://x/y"], "s3://BUCKET/PREFIX"),
        (&["agent", "--lake", "x", "--upload-every", "1s"], "one row a minute"),
        (&["agent", "--lake", "x", "--", "true"], "agent watches running processes"),
        (&["run", "--host", "h", "--scheme-line", "x", "--pid", "1"], "--lake"),
        (&["record", "--lake", "x", "--physical"], "watch processes"),
        (&["fleet", "compact", "--lake", "none", "--to", "x"], "there is no lake"),
    ] {
        let done = run_in(dir.path(), args);
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(error), "{args:?}: {}", done.err);
    }
}
