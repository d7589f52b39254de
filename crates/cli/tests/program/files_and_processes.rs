//! Processes and files in one record, and acted on by one scheme.

use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::act_files::resident;
use crate::alone::Alone;
use crate::cgroups::{Group, mounts_or_skip, put, starter_in};
use crate::files::with_whole_cache;
use crate::load::Load;
use crate::record_files::{MIB, cached, counted_file, counts_reads, folder};
use crate::run::{Record, finish, finish_after, isotherm, needs_root, until};
use crate::schemes::{log_in, swapped};

/// The record of a group has its processes, and the files that its processes have read first, without others.
#[test]
fn a_group_is_recorded_with_its_files() {
    let mounts = mounts_or_skip("a_group_is_recorded_with_its_files");
    // Memory of version 1 is charged to the groups of that controller only.
    let memory = mounts.iter().find(|m| m.ends_with("memory")).or(mounts.first());
    let Some(mount) = memory.filter(|_| counts_reads()) else { return };
    let group = Group::new(mount, "files");
    if !group.0.join("memory.stat").exists() {
        eprintln!("skipped: the group has no memory controller");
        return;
    }
    let dir = folder();
    let root = dir.path().canonicalize().unwrap();
    let [of_group, of_others] = ["own", "other"].map(|name| root.join(name));
    for path in [&of_group, &of_others] {
        let file = cached(path, 4);
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        file.read_exact_at(&mut vec![0; MIB as usize], 0).ok().filter(|()| *path == of_others);
        if *path == of_group {
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
    assert!(starter_in(&group).arg("cksum").arg(&of_group).status().unwrap().success());
    let mut load = Load::start(16, 4);
    put(load.pid(), &group.0);
    let record = dir.path().join("a.rec");
    let mut command = isotherm(["record", "--duration", "4s", "--cgroup", group.path(), "--dir"]);
    let done = finish(command.arg(&root).arg("-o").arg(&record));
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("1 process and"), "{}", done.err);
    let checked = finish(isotherm(["record", "--check"]).arg(&record));
    assert_eq!(checked.status, 0, "{}", checked.err);
    let record = Record::read(&record);
    assert_eq!(record.pids(), [load.pid().cast_unsigned()]);
    let files: Vec<&str> =
        record.targets.iter().filter(|t| t.pid.is_none()).map(|t| &*t.command).collect();
    assert_eq!(files, [of_group.to_str().unwrap()]);
    let last = record.snapshots.last().unwrap();
    let resident = |is_file: bool| -> u64 {
        let of = |id| record.targets.iter().any(|t| t.id == id && t.pid.is_none() == is_file);
        let views = last.targets.iter().filter(|view| of(view.id)).flat_map(|view| &view.regions);
        views.map(|r| r.range.len() / 10_000 * u64::from(r.resident_bp)).sum()
    };
    assert!((3 * MIB..=4 * MIB).contains(&resident(true)), "{}", resident(true));
    assert!(resident(false) >= 16 * MIB, "{}", resident(false));
    load.end(0);
    load.child().wait().unwrap();
}

/// What a scheme has done, by its log, to processes or files.
fn applied(log: &[Value], of_process: bool) -> u64 {
    let of_kind = log.iter().filter(|line| line["pid"].is_null() != of_process);
    of_kind.filter_map(|line| line["applied"].as_u64()).sum()
}

/// `reclaim` takes the cold memory of a process and the cold cache of a file; a dry run takes nothing.
#[test]
fn a_process_and_a_file_are_reclaimed_together() {
    needs_root!();
    let Some(_alone) = Alone::with_swap(128) else { return };
    with_whole_cache(|| {
        let Some((_dir, path, file)) = counted_file(16) else { return };
        let load = Load::start(32, 8);
        let pid = load.pid().to_string();
        let mib_cached = || resident(&file, 0..16);
        let run_until_applied = |more: &[&str], is_done: &dyn Fn(&[Value]) -> bool| {
            let mut command = isotherm(["reclaim", "--control", "none", "--watermarks", "none"]);
            command
                .args(["--min-age", "3s", "--quota", "none", "--pid", &pid, "--file"])
                .arg(&path);
            let log = tempfile::tempdir().unwrap();
            command.arg("--log").arg(log.path().join("log")).args(more);
            let done = finish_after(&mut command, |child| {
                until("what is cold", || {
                    let log = log_in(log.path());
                    applied(&log, true) >= 16 * MIB && is_done(&log)
                });
                kill_process(Pid::from_child(child), Signal::INT).unwrap();
            });
            assert_eq!(done.status, 0, "{}", done.err);
            let log = log_in(log.path());
            assert!(applied(&log, false) >= 14 * MIB, "{log:?}");
        };
        let assert_all_cached = || {
            assert!(mib_cached() >= 15.0, "{} MiB", mib_cached());
        };
        run_until_applied(&["--dry-run"], &|log| {
            assert_all_cached();
            applied(log, false) >= 14 * MIB
        });
        assert_all_cached();
        // The host of a virtual machine may have a few pages paged out.
        assert!(swapped(load.pid()) <= MIB / 4, "{} bytes", swapped(load.pid()));
        run_until_applied(&[], &|_| mib_cached() <= 2.0);
        assert!(swapped(load.pid()) >= 16 * MIB, "{} bytes", swapped(load.pid()));
    });
}
