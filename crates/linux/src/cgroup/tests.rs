use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// A machine on which both versions are mounted, with one group each: files of real ones, of Linux
/// 6.12 and 6.18.
fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         26 23 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    );
    for (name, text) in [
        ("cgroup.controllers", "memory pids\n"),
        ("cgroup.procs", "812\n815\n0\n"),
        ("below/cgroup.procs", "900\n"),
        ("memory.current", include_str!("fixtures/v2/memory.current")),
        ("memory.high", include_str!("fixtures/v2/memory.high")),
        ("memory.max", include_str!("fixtures/v2/memory.max")),
        ("memory.stat", include_str!("fixtures/v2/memory.stat")),
        ("memory.pressure", include_str!("fixtures/v2/memory.pressure")),
        ("memory.reclaim", ""),
    ] {
        write(&format!("sys/fs/cgroup/unified/shop/{name}"), text);
    }
    for (name, text) in [
        ("cgroup.procs", "7\n"),
        ("memory.usage_in_bytes", "27119616\n"),
        ("memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory.stat", include_str!("fixtures/v1/memory.stat")),
    ] {
        write(&format!("sys/fs/cgroup/memory/old/{name}"), text);
    }
    root
}

fn find(root: &TempDir, path: &str) -> Result<Cgroup, CgroupError> {
    Cgroup::find(root.path(), Path::new(path))
}

#[test]
fn by_path_below_a_mount_and_by_directory() {
    let root = machine();
    let shop = find(&root, "shop").unwrap();
    assert_eq!(shop.version(), Version::V2);
    assert_eq!(find(&root, "/shop").unwrap(), shop, "as /proc/PID/cgroup has it");
    assert_eq!(find(&root, "/sys/fs/cgroup/unified/shop").unwrap(), shop);
    assert_eq!(find(&root, "old").unwrap().version(), Version::V1);
    let said = find(&root, "shop/none").unwrap_err().to_string();
    assert!(said.contains("no control group shop/none") && said.contains("unified"), "{said}");
    let nothing = tempfile::tempdir().unwrap();
    let said = find(&nothing, "shop").unwrap_err().to_string();
    assert!(said.contains("no mount of cgroups"), "{said}");
}

/// A process in groups of both versions counts for the groups of each.
#[test]
fn a_subtree_contains_members_by_the_right_hierarchy() {
    let root = machine();
    let is_in = |pid: i32, text: &str| {
        fs::create_dir_all(root.path().join(format!("proc/{pid}"))).unwrap();
        fs::write(root.path().join(format!("proc/{pid}/cgroup")), text).unwrap();
    };
    is_in(1, "5:pids:/old\n4:memory:/\n0::/shop/below\n");
    is_in(2, "4:cpu,memory:/old/x\n0::/shopper\n");
    is_in(3, "4:memory:/shop\n0::/old\n");
    let in_it = |path| {
        let subtree = find(&root, path).unwrap().subtree(root.path()).unwrap();
        [1, 2, 3, 4].map(|pid| subtree.has(root.path(), pid))
    };
    assert_eq!(in_it("shop"), [true, false, false, false]);
    assert_eq!(in_it("old"), [false, true, false, false]);
    let other = root.path().join("sys/fs/cgroup/pids/old");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("cgroup.procs"), "").unwrap();
    let other = find(&root, "/sys/fs/cgroup/pids/old").unwrap();
    assert_eq!(other.subtree(root.path()), None, "of no memory controller");
}

/// Found by a review: the limit of a service was not seen for processes in a group below it without the controller.
#[test]
fn memory_is_charged_to_the_nearest_group_with_the_controller() {
    let root = machine();
    let group = |pid: i32, text: &str| {
        let path = root.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("cgroup"), text).unwrap();
        let dir = |group: Cgroup| group.dir().strip_prefix(root.path()).unwrap().to_owned();
        [Cgroup::of_process, Cgroup::charged_for].map(|of| of(root.path(), pid).map(dir))
    };
    let shop = Some("sys/fs/cgroup/unified/shop".into());
    assert_eq!(group(812, "0::/shop\n"), [shop.clone(), shop.clone()]);
    assert_eq!(group(900, "0::/shop/below\n"), [None, shop]);
    assert_eq!(group(901, "0::/\n"), [None, None]);
    assert_eq!(group(902, "0::/../shop\n"), [None, None]);
}

#[test]
fn a_subtree_contains_the_groups_below_it_only() {
    let root = machine();
    let shop = find(&root, "shop").unwrap();
    assert_eq!(shop.processes().unwrap(), BTreeSet::from([812, 815, 900]));
    fs::remove_dir_all(shop.dir()).unwrap();
    assert!(matches!(shop.processes(), Err(CgroupError::Removed(_))));
    assert!(!shop.exists());
}

#[test]
fn memory_of_version_2() {
    let root = machine();
    let shop = find(&root, "shop").unwrap();
    let stat = shop.memory_stat().unwrap();
    let current = shop.memory_current().unwrap();
    assert!(stat.anon > 8 << 20 && stat.anon + stat.file <= current, "{stat:?} of {current}");
    assert_eq!(shop.memory_max().unwrap(), Limit::Bytes(64 << 20));
    assert_eq!(shop.memory_high().unwrap(), Limit::None);
    assert!(Limit::Bytes(u64::MAX) < Limit::None);
    let pressure = shop.memory_pressure().unwrap();
    assert!(pressure.some.total >= pressure.full.total);
    assert!(pressure.some.total > Duration::ZERO, "{pressure:?}");
}

#[test]
fn reclaim_writes_the_text_of_the_kernel() {
    let root = machine();
    let shop = find(&root, "shop").unwrap();
    let read = |name: &str| fs::read_to_string(shop.dir().join(name)).unwrap();
    assert_eq!(shop.reclaim(4096).unwrap(), Reclaimed::All);
    assert_eq!(read("memory.reclaim"), "4096");
    for (limit, text) in [(Limit::Bytes(1 << 30), "1073741824"), (Limit::None, "max")] {
        fs::write(shop.dir().join("memory.max"), "").unwrap();
        shop.set_memory_max(limit).unwrap();
        assert_eq!(read("memory.max"), text);
    }
}

#[test]
fn page_cache_alone_is_reclaimed() {
    let root = machine();
    let shop = find(&root, "shop").unwrap();
    let done = shop.reclaim_cache(1 << 20).unwrap();
    assert_eq!((done.tried, done.applied), (1 << 20, 1 << 20));
    let text = fs::read_to_string(shop.dir().join("memory.reclaim")).unwrap();
    assert_eq!(text, "1048576 swappiness=0");
    let (stat, cache) = (shop.memory_stat().unwrap(), shop.unmapped_cache().unwrap());
    assert_eq!(cache.bytes, stat.file - stat.shmem - stat.file_mapped);
    assert_eq!(cache.refaults, stat.refault_file);
    let said = find(&root, "old").unwrap().reclaim_cache(0).unwrap_err().to_string();
    assert!(said.contains("Linux 6.9"), "{said}");
}

#[test]
fn version_1_has_less() {
    let root = machine();
    let old = find(&root, "old").unwrap();
    assert_eq!(old.memory_current().unwrap(), 27_119_616);
    assert_eq!(old.memory_max().unwrap(), Limit::None);
    let stat = old.memory_stat().unwrap();
    assert_eq!((stat.anon, stat.shmem), (1_642_340_352, 364_126_208), "with those below");
    for said in [
        old.memory_high().unwrap_err(),
        old.memory_pressure().unwrap_err(),
        old.reclaim(1).unwrap_err(),
    ] {
        assert!(said.to_string().contains("version 2"), "{said}");
    }
}

#[test]
fn nonsense_is_said() {
    let root = machine();
    let shop = find(&root, "shop").unwrap();
    for (name, text) in [
        ("memory.current", "many\n"),
        ("memory.max", "-1\n"),
        ("memory.stat", "anon lots\n"),
        ("memory.pressure", "some avg10=0.00 avg60=0.00 total=0\n"),
        (
            "memory.pressure",
            "some avg10=101.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        ),
    ] {
        fs::write(shop.dir().join(name), text).unwrap();
        let said = match name {
            "memory.current" => shop.memory_current().unwrap_err(),
            "memory.max" => shop.memory_max().unwrap_err(),
            "memory.stat" => shop.memory_stat().unwrap_err(),
            _ => shop.memory_pressure().unwrap_err(),
        };
        assert!(matches!(said, CgroupError::Parse { .. }), "{name}: {said}");
    }
}
