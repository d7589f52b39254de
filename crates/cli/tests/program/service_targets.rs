//! The processes of a service: those that come, go, come back, are added, or are excluded.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::cgroups::{Group, mounts_or_skip, put};
use crate::kill_on_drop::KillOnDrop;
use crate::load::Load;
use crate::notified::Notified;
use crate::reclaim::Service;
use crate::run::{copy_program, needs_root, run_in, until};

/// Enough for a service to look for processes several times.
const A_WHILE: Duration = Duration::from_secs(2);

/// A process that does nothing; killed when dropped.
struct Sleeper(KillOnDrop);

impl Sleeper {
    fn of(child: Child) -> Self {
        Sleeper(KillOnDrop(child))
    }

    fn new() -> Self {
        Sleeper::of(Command::new("sleep").arg("300").spawn().unwrap())
    }

    fn pid(&self) -> u64 {
        u64::from(self.0.id())
    }

    /// With a name that no other process has.
    fn named(dir: &TempDir, name: &str) -> Self {
        let program = dir.path().join(name);
        copy_program("/bin/sleep", &program);
        Sleeper::of(Command::new(program).arg("300").spawn().unwrap())
    }
}

fn pids(service: &Service) -> Vec<u64> {
    let status = service.status();
    let targets = status["targets"].as_array().unwrap();
    targets.iter().filter_map(|t| t["pid"].as_u64()).collect()
}

#[test]
fn missing_processes_are_waited_for() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let name = format!("late-{}", std::process::id());
    let told = Notified::listen();
    let group = format!("isotherm-test/{name}");
    let options = ["--comm", &name, "--cgroup", &group, "--dry-run"];
    let service = Service::start_in(TempDir::new().unwrap(), &options, &[told.place()]);
    assert_eq!(told.next(), "READY=1");
    for said in
        [format!("no process is called `{name}` yet"), format!("no control group {group} yet")]
    {
        assert!(service.err().contains(&said), "{}", service.err());
    }
    assert!(pids(&service).is_empty());
    let sleeper = Sleeper::named(&dir, &name);
    until("who was waited for", || pids(&service) == [sleeper.pid()]);
    drop(sleeper);
    until("the end of it", || pids(&service).is_empty());
    let again = Sleeper::named(&dir, &name);
    until("who has come back", || pids(&service) == [again.pid()]);
}

#[test]
fn run_does_not_wait_for_processes() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("s"), "4K null null 0 1h null stat").unwrap();
    let done = run_in(dir.path(), &["run", "--scheme", "s", "--comm", "nobody-at-all"]);
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("no process is called `nobody-at-all`"), "{}", done.err);
}

#[test]
fn processes_are_added_and_left_alone() {
    needs_root!();
    let [first, second] = [Load::start(16, 4), Load::start(16, 4)];
    let [a, b] = [&first, &second].map(|load| u64::from(load.pid().cast_unsigned()));
    let mut service = Service::working(&["--pid", &a.to_string(), "--dry-run"]);
    service.asked(&["targets", "--add", &b.to_string()]);
    let sorted = || {
        let mut pids = pids(&service);
        pids.sort_unstable();
        pids
    };
    until("both of them", || sorted() == if a < b { [a, b] } else { [b, a] });
    let gone = (1 << 22) + 1;
    let third = Sleeper::new();
    let both = ["--add", &third.pid().to_string(), "--add", &gone.to_string()];
    let done = service.ask(&[&["targets"], &both[..]].concat());
    assert!(done.status == 1 && done.err.contains(&gone.to_string()), "{}", done.err);
    let own = service.child.id().to_string();
    let done = service.ask(&["targets", "--add", &own]);
    assert!(done.status == 1 && done.err.contains("does not watch itself"), "{}", done.err);
    let done = service.ask(&["targets", "--remove", &own]);
    assert!(done.status == 1 && done.err.contains("is not watched"), "{}", done.err);
    service.asked(&["targets", "--remove", &a.to_string()]);
    until("the second alone", || pids(&service) == [b]);
    assert_eq!(service.end(Signal::TERM), Some(0), "{}", service.err());
    assert!(service.err().contains(": 2 processes"), "{}", service.err());
}

/// The name still selects it.
#[test]
fn a_member_that_is_left_alone_does_not_come_back() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let name = format!("left-{}", std::process::id());
    let [first, second] = [Sleeper::named(&dir, &name), {
        let program = dir.path().join(&name);
        Sleeper::of(Command::new(program).arg("300").spawn().unwrap())
    }];
    let service = Service::working(&["--comm", &name, "--dry-run"]);
    until("both of them", || pids(&service).len() == 2);
    service.asked(&["targets", "--remove", &first.pid().to_string()]);
    let second = second.pid();
    until("the second alone", || pids(&service) == [second]);
    std::thread::sleep(A_WHILE);
    assert_eq!(pids(&service), [second]);
    service.asked(&["targets", "--add", &first.pid().to_string()]);
    until("both of them", || pids(&service).len() == 2);
}

/// Also processes that get the name by exec, and processes with watched children.
#[test]
fn processes_excluded_by_name_are_not_watched() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let [watched, spared] = ["seen", "kept"].map(|name| format!("{name}-{}", std::process::id()));
    let [one, other] = [Sleeper::named(&dir, &watched), Sleeper::named(&dir, &spared)];
    copy_program("/bin/sh", dir.path().join("starter"));
    let [program, starter] = [&spared, "starter"].map(|name| dir.path().join(name));
    let starting = |script: &str| {
        let mut command = Command::new(&starter);
        command.args(["-c", script]).arg(&program).process_group(0).stdin(Stdio::piped());
        Sleeper::of(command.spawn().unwrap())
    };
    // The first one is a parent with an excluded child; the second one becomes such a parent.
    let parent = starting("\"$0\" 300 & sleep 300 & wait");
    let mut becoming = starting("read x; exec \"$0\" 300");
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", parent.pid());
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u64>>()
    };
    until("both children", || {
        let comm = |pid: &u64| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let named = children().iter().map(comm).collect::<Vec<_>>();
        named.iter().any(|c| c.trim() == spared) && named.iter().any(|c| c == "sleep\n")
    });
    let comms = ["--comm", &watched, "--comm", &spared, "--except-comm", &spared];
    let [parent_pid, becoming_pid] = [&parent, &becoming].map(|s| s.pid().to_string());
    let pid = ["--pid", &parent_pid, "--pid", &becoming_pid, "--children", "--dry-run"];
    let service = Service::working(&[&comms[..], &pid].concat());
    until("who is to become another", || pids(&service).contains(&becoming.pid()));
    drop(becoming.0.stdin.take());
    let ok = |all: &[u64]| {
        let spared = children()
            .into_iter()
            .filter(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() != "sleep\n");
        let mut never = spared.chain([other.pid()]);
        all.contains(&one.pid()) && all.contains(&parent.pid()) && !never.any(|p| all.contains(&p))
    };
    until("who has become another to be left alone", || !pids(&service).contains(&becoming.pid()));
    std::thread::sleep(A_WHILE);
    let all = pids(&service);
    assert!(ok(&all) && !all.contains(&becoming.pid()), "{all:?}");
    assert_eq!(all.len(), 3, "and the other child: {all:?}");
    let refused = service.ask(&["targets", "--add", &other.pid().to_string()]);
    assert!(refused.status == 1 && refused.err.contains("--except-comm"), "{}", refused.err);
    for group in [&parent, &becoming] {
        let _ = kill_process_group(Pid::from_child(&group.0), Signal::KILL);
    }
}

#[test]
fn processes_excluded_by_group_or_pid_are_not_watched() {
    for mount in mounts_or_skip("processes_excluded_by_group_or_pid_are_not_watched") {
        let dir = TempDir::new().unwrap();
        let name = format!("grp-{}", std::process::id());
        let one = Sleeper::named(&dir, &name);
        let [two, three] = [(); 2].map(|()| {
            Sleeper::of(Command::new(dir.path().join(&name)).arg("300").spawn().unwrap())
        });
        let group = Group::new(&mount, "spared");
        put(two.0.id().cast_signed(), &group.0.join("below"));
        let spare = ["--except-cgroup", group.path(), "--except-pid", &three.pid().to_string()];
        let service = Service::working(&[&["--comm", &name, "--dry-run"][..], &spare].concat());
        until("the first alone", || pids(&service) == [one.pid()]);
        put(one.0.id().cast_signed(), &group.0);
        until("nobody", || pids(&service).is_empty());
        put(two.0.id().cast_signed(), &mount);
        until("the second", || pids(&service) == [two.pid()]);
        put(one.0.id().cast_signed(), &mount);
        until("both", || pids(&service).len() == 2);
        drop(service);
        let [pid, none] = [one.pid().to_string(), "2147483647".to_owned()];
        for (args, said) in [
            (["--except-pid", &pid], "is excluded by --except-pid"),
            (["--except-pid", &none], "there is no process 2147483647"),
            (["--except-cgroup", "/no/such"], "no control group"),
        ] {
            let done = run_in(dir.path(), &[&["record", "--pid", &pid][..], &args].concat());
            assert!(done.status == 1 && done.err.contains(said), "{}", done.err);
        }
        drop((one, two, three));
    }
}

#[test]
fn added_processes_stay_beside_those_of_a_name() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let name = format!("among-{}", std::process::id());
    let (member, other) = (Sleeper::named(&dir, &name), Sleeper::new());
    let service = Service::working(&["--comm", &name, "--dry-run"]);
    until("who is of the name", || pids(&service) == [member.pid()]);
    service.asked(&["targets", "--add", &other.pid().to_string()]);
    let both = || {
        let pids = pids(&service);
        pids.len() == 2 && pids.contains(&member.pid()) && pids.contains(&other.pid())
    };
    until("both of them", both);
    std::thread::sleep(A_WHILE);
    assert!(both(), "{:?}", pids(&service));
}

#[test]
fn a_group_may_come_late_and_come_back() {
    for mount in mounts_or_skip("a_group_may_come_late_and_come_back") {
        let group = || Group::new(&mount, "late");
        let path = group().path().to_owned();
        assert!(!fs::exists(&path).unwrap());
        let service = Service::start(&["--cgroup", &path, "--dry-run"]);
        until("that it waits", || service.err().contains("yet: waiting for it"));
        for _ in 0..2 {
            let (group, sleeper) = (group(), Sleeper::new());
            put(sleeper.0.id().cast_signed(), &group.0);
            until("who is in it", || pids(&service) == [sleeper.pid()]);
            drop(sleeper);
            drop(group);
            assert!(!fs::exists(&path).unwrap());
            until("the end of it", || pids(&service).is_empty());
        }
    }
}

/// Each needs three descriptors.
#[test]
fn more_can_be_added_than_files_are_usual() {
    needs_root!();
    let many: Vec<Sleeper> = (0..60).map(|_| Sleeper::new()).collect();
    let mut command = Command::new("prlimit");
    command.args(["--nofile=128:4096", env!("CARGO_BIN_EXE_isotherm"), "reclaim"]);
    let first = many[0].pid().to_string();
    let options = ["--pid", &first, "--dry-run"];
    let service = Service::start_by(command, TempDir::new().unwrap(), &options, &[]);
    service.until_working();
    let pids_of_all: Vec<String> = many.iter().map(|one| one.pid().to_string()).collect();
    let add = pids_of_all.iter().flat_map(|pid| ["--add", pid]);
    service.asked(&["targets"].into_iter().chain(add).collect::<Vec<_>>());
    until("all of them", || pids(&service).len() == many.len());
}

/// The list of a target's open files could no longer be read, and that once ended the service.
#[test]
fn where_files_run_short_some_are_watched_and_the_service_goes_on() {
    needs_root!();
    let dir = TempDir::new().unwrap();
    let name = format!("short-{}", std::process::id());
    let mut many = vec![Sleeper::named(&dir, &name)];
    let another = || Command::new(dir.path().join(&name)).arg("300").spawn().unwrap();
    many.extend((0..29).map(|_| Sleeper::of(another())));
    let mut command = Command::new("prlimit");
    command.args(["--nofile=64:64", env!("CARGO_BIN_EXE_isotherm"), "reclaim"]);
    let options = ["--comm", &name, "--dry-run"];
    let service = Service::start_by(command, TempDir::new().unwrap(), &options, &[]);
    service.until_working();
    until("some of them", || (3..15).contains(&pids(&service).len()));
    let said = service.err();
    assert_eq!(said.matches("cannot be watched for now").count(), 1, "{said}");
    assert!(said.contains("LimitNOFILE="), "{said}");
    // When there is room again, further processes are watched.
    let watched = pids(&service);
    many.retain(|one| !watched.contains(&one.pid()));
    until("others", || {
        let now = pids(&service);
        now.len() >= 3 && now.iter().all(|pid| !watched.contains(pid))
    });
    assert_eq!(service.status()["postponed"], 0);
}

/// A shell with several children; all of them are killed when dropped.
struct Family(Child);

impl Family {
    fn new(children: usize) -> Self {
        let script = format!("for i in $(seq {children}); do sleep 300 & done; wait");
        Family(Command::new("sh").args(["-c", &script]).process_group(0).spawn().unwrap())
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn children_may_be_more_than_files_are_usual() {
    needs_root!();
    let family = Family::new(60);
    let mut command = Command::new("prlimit");
    command.args(["--nofile=128:4096", env!("CARGO_BIN_EXE_isotherm"), "reclaim"]);
    let options = ["--pid", &family.0.id().to_string(), "--children", "--dry-run"];
    let service = Service::start_by(command, TempDir::new().unwrap(), &options, &[]);
    service.until_working();
    until("all of them", || pids(&service).len() == 61);
}

/// The targets must be in one group, otherwise its pressure is not known.
#[test]
fn each_set_of_schemes_that_rests_is_reported() {
    for mount in mounts_or_skip("each_set_of_schemes_that_rests_is_reported") {
        let (group, first, second) = (Group::new(&mount, "rests"), Sleeper::new(), Sleeper::new());
        let counts = |name: &&str| group.0.join(name).exists();
        if !["memory.current", "memory.usage_in_bytes"].iter().any(counts) {
            continue;
        }
        put(second.0.id().cast_signed(), &group.0);
        let options = ["--pid", &first.pid().to_string(), "--goal", "refault=1%", "--dry-run"];
        let service = Service::working(&options);
        let times = || service.err().matches("the pressure of the targets are suspended").count();
        assert_eq!(times(), 0);
        service.asked(&["targets", "--add", &second.pid().to_string()]);
        until("word of it", || times() == 1);
        let text = "[[scheme]]\naction = \"stat\"\n[scheme.quota]\nbytes = \"4M\"\nreset = \"1s\"\n\
                    goals = [{ refaults = { target = \"1%\" } }]\n";
        fs::write(service.dir.path().join("other.toml"), text).unwrap();
        service.asked(&["commit", "other.toml"]);
        until("word of it again", || times() == 2);
    }
}
