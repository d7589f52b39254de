//! On a tree of files: process 7 in a group of version 2, process 8 in one of version 1.

use std::fs;

use isotherm_core::scheme::{Aim, Goal, Quota, Weights};
use isotherm_core::{Action, Attrs, Cost, Nanos};
use tempfile::TempDir;

use super::*;

const PSI: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000\n\
                   full avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n";

fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/7/cgroup", "0::/a\n"),
        ("proc/7/statm", "900 25 5 0 0 0 0\n"),
        ("proc/8/statm", "900 25 5 0 0 0 0\n"),
        ("proc/8/cgroup", "4:memory:/old\n0::/\n"),
        (
            "proc/self/mountinfo",
            "35 31 0:32 / /cgroup/memory rw - cgroup cgroup rw,memory\n\
             26 23 0:24 / /cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("proc/meminfo", "MemTotal: 4000 kB\nMemFree: 1000 kB\nMemAvailable: 1000 kB\n"),
        ("proc/buddyinfo", "Node 0, zone Normal 512 0 0 0 0 0 0 0 0 1\n"),
        ("proc/vmstat", "pgmajfault 3\n"),
        ("proc/pressure/memory", PSI),
        ("cgroup/unified/a/cgroup.procs", "7"),
        ("cgroup/unified/a/cgroup.controllers", "memory"),
        ("cgroup/unified/a/memory.current", "5000"),
        ("cgroup/unified/a/memory.stat", "pgmajfault 9\n"),
        ("cgroup/unified/a/memory.pressure", PSI),
        ("cgroup/memory/old/cgroup.procs", "8"),
        ("cgroup/memory/old/memory.usage_in_bytes", "1"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn with_goal(goal: Goal) -> Scheme {
    let mut scheme = Scheme::new("x", Default::default(), Action::Stat);
    scheme.quota = Quota { goals: vec![goal], ..Quota::default() };
    scheme
}

fn stalled(of: Scope) -> Scheme {
    with_goal(Goal::Stalled { of, target: Duration::from_millis(1) })
}

fn targets() -> Scope {
    Scope::Group(TARGETS.into())
}

fn snapshot() -> Snapshot {
    Snapshot {
        seq: 0,
        start: Nanos(0),
        end: Nanos(1),
        attrs: Attrs::default(),
        cost: Cost::default(),
        quality: None,
        targets: Vec::new(),
    }
}

/// Its refaults are read at most each 10 s. A group that cannot reclaim page cache alone has none.
#[test]
fn page_cache_of_groups_that_can_reclaim_it() {
    let root = machine();
    let aimed =
        |aim| Scheme { aim: Some(aim), ..Scheme::new("x", Default::default(), Action::PageOut) };
    let pids = BTreeMap::from([(TargetId(1), 7), (TargetId(2), 8)]);
    let at = |s: u64| Snapshot { seq: s, end: Nanos(s * 1_000_000_000), ..snapshot() };
    let dir = root.path().join("cgroup/unified/a");
    let stat = |n: u64| {
        let text = format!("file 9000\nshmem 1000\nfile_mapped 500\nworkingset_refault_file {n}\n");
        fs::write(dir.join("memory.stat"), text).unwrap();
    };
    let meter = |aim| Meter::new(root.path(), [&aimed(aim)].into_iter(), &[], None).unwrap();
    let mut refused = meter(Aim::Refaults(2000));
    stat(3);
    assert_eq!(refused.read(root.path(), &at(1), &pids).caches, BTreeMap::new());
    fs::write(dir.join("memory.reclaim"), "").unwrap();
    let mut meter_of = meter(Aim::Refaults(2000));
    let mut read = |s| meter_of.read(root.path(), &at(s), &pids).caches;
    let name: Arc<str> = Arc::from(dir.to_string_lossy());
    let cache = |refaults| BTreeMap::from([(name.clone(), GroupCache { bytes: 7500, refaults })]);
    assert_eq!(read(1), cache(3));
    assert_eq!(fs::read_to_string(dir.join("memory.reclaim")).unwrap(), "0 swappiness=0");
    stat(9);
    assert_eq!((read(10), read(11)), (cache(3), cache(9)));
    let selecting = |targets: &Selection| {
        let mut meter = meter(Aim::Refaults(2000)).selecting(targets);
        meter.read(root.path(), &at(1), &pids).caches.len()
    };
    let whole = Selection { cgroups: vec!["a".into()], ..Selection::default() };
    assert_eq!((selecting(&whole), selecting(&Selection::pid(7))), (1, 0));
    assert_eq!(selecting(&Selection { except_comms: vec!["x".into()], ..whole }), 0);
    assert_eq!(meter(Aim::Save(3000)).read(root.path(), &at(1), &pids).caches, BTreeMap::new());
    meter_of.note_other_targets();
    assert_eq!(meter_of.read(root.path(), &at(21), &pids).caches, BTreeMap::new());
    let mut next = meter(Aim::Refaults(2000)).after(meter_of);
    assert_eq!(
        next.read(root.path(), &at(22), &pids).caches,
        BTreeMap::new(),
        "after a commit too"
    );
}

fn why_not(root: &TempDir, scheme: &Scheme, pids: &[i32]) -> String {
    why_not_by(None, root, scheme, pids)
}

fn why_not_by(option: Option<&str>, root: &TempDir, scheme: &Scheme, pids: &[i32]) -> String {
    match Meter::new(root.path(), [scheme].into_iter(), pids, option) {
        Ok(meter) if meter.missing().is_empty() => "yes".to_owned(),
        Ok(meter) => format!("not yet: {}", meter.missing().join(", ")),
        Err(e) => chain(&e),
    }
}

#[test]
fn pressure_that_the_kernel_does_not_count_is_an_error_at_the_start() {
    let root = machine();
    assert_eq!(why_not(&root, &stalled(Scope::Machine), &[]), "yes");
    assert_eq!(why_not(&root, &stalled(targets()), &[7]), "yes");
    assert_eq!(why_not(&root, &stalled(Scope::Group("a".into())), &[]), "yes");
    let version_1 = why_not(&root, &stalled(targets()), &[8]);
    assert!(
        version_1.contains("of = \"machine\"") && version_1.contains("version 2"),
        "{version_1}"
    );
    let two = why_not(&root, &stalled(targets()), &[7, 8]);
    assert!(two.starts_with("not yet") && two.contains("more than one control group"), "{two}");
    fs::remove_file(root.path().join("proc/pressure/memory")).unwrap();
    let off = why_not(&root, &stalled(Scope::Machine), &[]);
    assert!(off.contains("scheme `x`") && off.contains("CONFIG_PSI"), "{off}");
}

/// There is no `of` on the command line.
#[test]
fn advice_for_a_typed_goal_names_options() {
    let root = machine();
    for (pids, why) in [(&[8][..], "version 2"), (&[7, 8], "more than one control group")] {
        let scheme = stalled(targets());
        let said = why_not_by(Some("x"), &root, &scheme, pids);
        assert!(said.contains(why) && said.contains("--all") && !said.contains("of ="), "{said}");
        let said = why_not_by(Some("y"), &root, &scheme, pids);
        assert!(said.contains("of = \"machine\""), "{said}");
    }
    let refaults = with_goal(Goal::Refaults { of: targets(), ppm: 1 });
    let mut meter = Meter::new(root.path(), [&refaults].into_iter(), &[7, 8], Some("x")).unwrap();
    let pids = BTreeMap::from([(TargetId(1), 7), (TargetId(2), 8)]);
    meter.read(root.path(), &snapshot(), &pids);
    let rests = meter.rests().unwrap();
    assert!(rests.contains("leave out --goal") && !rests.contains("of ="), "{rests}");
}

#[test]
fn figures_are_read_as_far_as_they_are_asked_for() {
    let root = machine();
    let file = root.path().join("figure");
    fs::write(&file, "4.5\n").unwrap();
    let name: Arc<str> = file.to_string_lossy().into();
    let schemes = [
        stalled(targets()),
        with_goal(Goal::Free { bp: 1 }),
        with_goal(Goal::User { name: name.clone(), target: 5.0 }),
        with_goal(Goal::Resident { of: Scope::Group("a".into()), bytes: 1 }),
    ];
    let mut meter = Meter::new(root.path(), schemes.iter(), &[7], None).unwrap();
    let pids = BTreeMap::from([(TargetId(1), 7)]);
    let metrics = meter.read(root.path(), &snapshot(), &pids);
    assert_eq!((metrics.free_bp, metrics.fragmentation_bp), (Some(2500), None));
    assert_eq!(metrics.user[&name], 4.5);
    let of = metrics.groups[TARGETS];
    assert_eq!((of.resident, of.working_set), (Some(25 * 4096), Some(0)));
    assert_eq!(of.pressure.unwrap().major_faults, 9, "of their group");
    assert_eq!(metrics.groups["a"].resident, Some(5000));
    assert!(metrics.cgroups[&TargetId(1)].ends_with("/unified/a"));
    fs::remove_dir_all(root.path().join("cgroup/unified/a")).unwrap();
    let gone = meter.read(root.path(), &snapshot(), &pids);
    assert!(!gone.groups.contains_key("a"), "{gone:?}");
    assert_eq!(gone.groups[TARGETS].pressure, None);
}

/// Its attributions show the move.
#[test]
fn a_process_that_moves_is_in_its_new_group() {
    let root = machine();
    let scheme = Scheme { aim: Some(Aim::Save(1)), ..with_goal(Goal::Free { bp: 1 }) };
    let mut meter = Meter::new(root.path(), [&scheme].into_iter(), &[7], None).unwrap();
    let target = TargetId(1);
    let mut group = |cgroup: &str| {
        let (comm, cgroup) = ("".into(), cgroup.into());
        let a = Attribution { target, at: Nanos(0), comm, cgroup, swapped: 0, major_faults: 0 };
        meter.note_groups([&a].into_iter());
        let pids = BTreeMap::from([(target, 7)]);
        meter.read(root.path(), &snapshot(), &pids).cgroups[&target].clone()
    };
    assert!(group("/a").ends_with("/unified/a"));
    fs::write(root.path().join("proc/7/cgroup"), "0::/b\n").unwrap();
    let [old, new] = ["a", "b"].map(|name| root.path().join("cgroup/unified").join(name));
    fs::rename(old, new).unwrap();
    assert!(group("/a").ends_with("/unified/a"), "no attribution shows it yet");
    assert!(group("/b").ends_with("/unified/b"));
}

/// Otherwise the difference to the earlier counters would be that of two groups.
#[test]
fn counters_continue_while_the_group_of_the_targets_changes() {
    let root = machine();
    let scheme = stalled(targets());
    let mut meter = Meter::new(root.path(), [&scheme].into_iter(), &[7], None).unwrap();
    let of_group = BTreeMap::from([(TargetId(1), 7)]);
    let group = |n: u64| {
        let stat = root.path().join("cgroup/unified/a/memory.stat");
        fs::write(stat, format!("pgmajfault {n}\n")).unwrap();
    };
    let mut faults = |pids: &BTreeMap<TargetId, i32>| {
        let metrics = meter.read(root.path(), &snapshot(), pids);
        let faults = metrics.groups[TARGETS].pressure.unwrap().major_faults;
        // The next schemes use the same counters.
        let next = Meter::new(root.path(), [&scheme].into_iter(), &[7], None).unwrap();
        meter = next.after(std::mem::take(&mut meter));
        faults
    };
    assert_eq!(faults(&of_group), 9);
    group(12);
    assert_eq!(faults(&of_group), 12);
    // Without targets, the figures are those of the machine.
    fs::write(root.path().join("proc/vmstat"), "pgmajfault 3000\n").unwrap();
    assert_eq!(faults(&BTreeMap::new()), 12);
    fs::write(root.path().join("proc/vmstat"), "pgmajfault 3004\n").unwrap();
    assert_eq!(faults(&BTreeMap::new()), 16);
    group(20);
    assert_eq!((faults(&of_group), faults(&of_group)), (16, 16));
    group(21);
    assert_eq!(faults(&of_group), 17);
}

#[test]
fn targets_of_several_groups_have_no_pressure_and_that_is_reported() {
    let root = machine();
    let pids = BTreeMap::from([(TargetId(1), 7), (TargetId(2), 8)]);
    let resident = with_goal(Goal::Resident { of: targets(), bytes: 1 });
    let refaults = with_goal(Goal::Refaults { of: targets(), ppm: 1 });
    for (scheme, rests) in [(resident, false), (refaults, true)] {
        let mut meter = Meter::new(root.path(), [&scheme].into_iter(), &[7, 8], None).unwrap();
        assert_eq!(meter.rests(), None);
        let of = meter.read(root.path(), &snapshot(), &pids).groups[TARGETS];
        assert_eq!((of.pressure, of.resident), (None, Some(50 * 4096)));
        assert_eq!(meter.rests().is_some_and(|why| why.contains("of = \"machine\"")), rests);
    }
}

#[test]
fn processes_are_named_anew_with_each_snapshot() {
    let root = machine();
    let call = |comm: &str| {
        let stat = format!("7 ({comm}) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 0 0 1 0 9 0 0\n");
        fs::write(root.path().join("proc/7/stat"), stat).unwrap();
    };
    let mut scheme = Scheme::new("x", Default::default(), Action::Stat);
    let kind = FilterKind::Comm("b".into());
    scheme.filters = vec![isotherm_core::scheme::Filter { kind, matching: true, allow: true }];
    let mut meter = Meter::new(root.path(), [&scheme].into_iter(), &[7], None).unwrap();
    let pids = BTreeMap::from([(TargetId(1), 7)]);
    let mut name = |seq| {
        let metrics = meter.read(root.path(), &Snapshot { seq, ..snapshot() }, &pids);
        metrics.processes[&TargetId(1)].comm.to_string()
    };
    call("a");
    assert_eq!(name(0), "a");
    call("b");
    assert_eq!((name(0), name(1)), ("a".to_owned(), "b".to_owned()));
}

/// A restarted service must not fail because a group or process that existed before is missing for a while.
#[test]
fn missing_figures_are_reported_and_read_later() {
    let root = machine();
    let file = root.path().join("figure");
    let name: Arc<str> = file.to_string_lossy().into();
    let schemes = [
        with_goal(Goal::User { name: name.clone(), target: 5.0 }),
        with_goal(Goal::Resident { of: Scope::Group("b".into()), bytes: 1 }),
        stalled(Scope::Group("b".into())),
    ];
    let mut meter = Meter::new(root.path(), schemes.iter(), &[], None).unwrap();
    assert_eq!(meter.missing().len(), 3, "{:?}", meter.missing());
    for (said, part) in meter.missing().iter().zip(["figure", "no control group b", "group b"]) {
        assert!(said.contains("scheme `x` does nothing until") && said.contains(part), "{said}");
    }
    let mut read = |seq| meter.read(root.path(), &Snapshot { seq, ..snapshot() }, &BTreeMap::new());
    let metrics = read(0);
    assert!(metrics.user.is_empty() && metrics.groups.is_empty(), "{metrics:?}");
    let group = root.path().join("cgroup/unified/b");
    fs::create_dir(&group).unwrap();
    for (name, text) in
        [("cgroup.procs", ""), ("cgroup.controllers", "memory"), ("memory.current", "7000")]
    {
        fs::write(group.join(name), text).unwrap();
    }
    fs::write(&file, "4.5\n").unwrap();
    let metrics = read(1);
    assert_eq!((metrics.user[&name], metrics.groups["b"].resident), (4.5, Some(7000)));
}

/// Reads cost what the disk has shown, and swap on it as much.
#[test]
fn prices_are_those_of_this_machine() {
    let root = machine();
    fs::write(root.path().join("proc/diskstats"), " 8 0 sda 10 0 800 300 0 0 0 0 0 0 0\n").unwrap();
    let quota = Quota { weights: Weights { cost: 1, ..Weights::default() }, ..Quota::default() };
    let scheme = Scheme { quota, ..Scheme::new("x", Default::default(), Action::PageOut) };
    let read = Duration::from_millis(3);
    let prices = || {
        let mut meter = Meter::new(root.path(), [&scheme].into_iter(), &[], None).unwrap();
        meter.read(root.path(), &snapshot(), &BTreeMap::new()).prices
    };
    assert_eq!(prices(), Prices { read, ..Prices::default() });
    fs::write(root.path().join("proc/swaps"), "Filename\n/dev/sda2 partition 99 0 -2\n").unwrap();
    assert_eq!(prices(), Prices::on_disk(read));
}

/// Found by a review: the service waited for the writer of a pipe.
#[test]
fn a_pipe_in_the_place_of_a_number_hangs_nothing() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Without a reader of its own, a wait would end only with the test.
    let (done, result) = std::sync::mpsc::channel();
    let name = path.display().to_string();
    std::thread::spawn(move || done.send(number(&name).map_err(|e| chain(&e))));
    let read = result.recv_timeout(Duration::from_secs(20)).expect("it waits for a writer");
    assert!(read.as_ref().is_err_and(|e| e.contains("no regular file")), "{read:?}");
}
