//! Control groups, whose processes are watched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use isotherm_core::Restraint;
use isotherm_record::FileEndReason;

use crate::alone::Alone;
use crate::load::{Load, MIB};
use crate::run::{Record, Recorder, has_or_skip, root_or_skip, run_in, until};

/// A group with one below it. Removed when dropped, when no process may be left in them.
pub struct Group(pub PathBuf);

impl Group {
    pub fn new(mount: &Path, name: &str) -> Self {
        let dir = mount.join(format!("isotherm-test-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        Group(dir)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn remove(&self) {
        for dir in [self.0.join("below"), self.0.clone()] {
            // A process that has just ended may be in the group for another moment.
            (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                fs::remove_dir(&dir).is_ok()
            });
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

pub fn put(pid: i32, dir: &Path) {
    fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
}

/// Runs the rest of its command line in the group.
pub fn starter_in(group: &Group) -> Command {
    let mut starter = Command::new("sh");
    starter.args(["-c", r#"echo $$ > "$0"/cgroup.procs && exec "$@""#, group.path()]);
    starter
}

/// The mounts of version 2 and of version 1's memory controller, if this machine has them.
fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_one = |l: &&str| l.contains(" - cgroup2 ") || l.ends_with("memory");
    let mounts = text.lines().filter(is_one);
    mounts.map(|l| PathBuf::from(l.split(' ').nth(4).unwrap())).filter(|m| m.is_dir()).collect()
}

/// Or prints why there are none. A machine without cgroups may be a container.
pub fn mounts_or_skip(test: &str) -> Vec<PathBuf> {
    if !root_or_skip(test) {
        return Vec::new();
    }
    let mounts = mounts();
    has_or_skip(!mounts.is_empty(), test, "a mount of cgroups");
    mounts
}

#[test]
fn members_are_watched_as_they_come_and_go() {
    for mount in mounts_or_skip("members_are_watched_as_they_come_and_go") {
        let group = Group::new(&mount, "members");
        let outside = Load::start(16, 4);
        let pid = outside.pid().to_string();
        // The group is still empty.
        let mut recorder = Recorder::counted(&["--cgroup", group.path(), "--pid", &pid]);
        let (mut ends, leaves, stays) =
            (Load::start(16, 4), Load::start(16, 4), Load::start(16, 4));
        put(ends.pid(), &group.0);
        put(leaves.pid(), &group.0.join("below"));
        put(stays.pid(), &group.0.join("below"));
        until("all of them", || recorder.watched().len() == 4);
        recorder.until_more(3);
        put(leaves.pid(), &mount);
        ends.end(0);
        ends.child().wait().unwrap();
        until("two of them", || recorder.watched().len() == 2);
        recorder.until_more(3);
        let record = recorder.stop();
        record.assert_without_gaps();
        assert_eq!(record.pids().len(), 4, "{:?}", record.targets);
        let now = record.snapshots.last().unwrap();
        let seen: Vec<u32> = record
            .targets
            .iter()
            .filter(|t| now.targets.iter().any(|n| n.id == t.id))
            .filter_map(|t| t.pid)
            .collect();
        let mut still = [&outside, &stays].map(|load| load.pid().cast_unsigned());
        still.sort_unstable();
        assert_eq!(seen, still, "{:?}", record.targets);
        let of_leaver = record.snapshots_of(leaves.pid().cast_unsigned());
        assert!((1..record.snapshots.len() - 2).contains(&of_leaver), "{of_leaver}");
    }
}

#[test]
fn a_removed_group_ends_the_recording() {
    for mount in mounts_or_skip("a_removed_group_ends_the_recording") {
        let group = Group::new(&mount, "removed");
        let mut load = Load::start(16, 4);
        put(load.pid(), &group.0);
        let mut recorder = Recorder::counted(&["--cgroup", group.path()]);
        load.end(0);
        load.child().wait().unwrap();
        until("nobody", || recorder.watched().is_empty());
        group.remove();
        assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
        let record = Record::read(&recorder.record());
        assert_eq!(record.pids(), [load.pid().cast_unsigned()]);
        assert_eq!(record.end.unwrap().why, FileEndReason::TargetsGone);
        let check = run_in(recorder.dir(), &["record", "--check", "a.rec"]);
        assert_eq!(check.status, 0, "{}", check.text());
    }
}

#[test]
fn a_group_that_is_not_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["no/such/group", "/no/such/group", "/tmp", ".."] {
        let done = run_in(dir.path(), &["record", "--cgroup", path, "--look", "smaps"]);
        assert_eq!(done.status, 1, "{}", done.err);
        assert!(done.err.contains("there is no control group"), "{}", done.err);
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}

/// The memory that it touches all the time does not fit. The control group reports its limit, in either
/// version.
#[test]
fn groups_short_of_memory_are_spared() {
    const NAME: &str = "groups_short_of_memory_are_spared";
    let files = ["memory.limit_in_bytes", "memory.max"];
    let mounts = mounts_or_skip(NAME);
    let mut tried = mounts.is_empty();
    for mount in mounts {
        let group = Group::new(&mount, "short");
        let Some(limit) = files.iter().map(|name| group.0.join(name)).find(|f| f.exists()) else {
            continue;
        };
        let Some(_alone) = Alone::with_swap(256) else { return };
        fs::write(limit, (48 * MIB).to_string()).unwrap();
        let mut starter = starter_in(&group);
        Load::words(&mut starter, 128, 64);
        let load = Load::from_command(&mut starter);
        let pid = load.pid().to_string();
        let mut recorder = Recorder::counted(&["--monitor", "exposure", "--pid", &pid]);
        recorder.until_more(5);
        let record = recorder.stop();
        let reported = record.snapshots.iter().filter_map(|s| Some(s.quality?.restraint));
        let reported: Vec<Restraint> = reported.collect();
        assert!(reported.last() > Some(&Restraint::None), "{reported:?}");
        assert!(reported.contains(&Restraint::ReadOnly), "{reported:?}");
        tried = true;
    }
    assert!(tried, "no control group here has a limit");
}
