//! Files of `/proc`, `/sys` and control groups, and of compilers that generate code.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use isotherm_linux::cgroup::{Cgroup, machine_pressure, path_of};
use isotherm_linux::code::Functions;
use isotherm_linux::proc;
use tempfile::TempDir;

use crate::bounded;

/// The process of the trees.
const PID: i32 = 7;
/// Files of which each holds the input.
const FILES: [&str; 29] = [
    "proc/7/maps",
    "proc/7/smaps",
    "proc/7/stat",
    "proc/7/statm",
    "proc/7/status",
    "proc/7/comm",
    "proc/7/cmdline",
    "proc/7/numa_maps",
    "proc/7/fdinfo/3",
    "proc/7/task/7/stat",
    "proc/7/task/7/comm",
    "proc/7/task/7/children",
    "proc/buddyinfo",
    "proc/pagetypeinfo",
    "proc/loadavg",
    "proc/meminfo",
    "proc/vmstat",
    "proc/zoneinfo",
    "proc/iomem",
    "proc/pressure/memory",
    "sys/devices/system/memory/block_size_bytes",
    "sys/fs/cgroup/g/memory.current",
    "sys/fs/cgroup/g/memory.max",
    "sys/fs/cgroup/g/memory.high",
    "sys/fs/cgroup/g/memory.stat",
    "sys/fs/cgroup/g/memory.pressure",
    "sys/fs/cgroup/g/cgroup.procs",
    "tmp/perf-7.map",
    "tmp/jit-7.dump",
];
/// Files that lead to control groups: they hold the input in the second tree only.
const LEADING: [(&str, &str); 3] = [
    ("proc/self/mountinfo", "26 23 0:24 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
    ("proc/7/cgroup", "0::/g\n"),
    ("sys/fs/cgroup/g/cgroup.controllers", "memory\n"),
];

/// Two trees of links to one file.
struct Machine {
    input: PathBuf,
    roots: [PathBuf; 2],
    _dir: TempDir,
}

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let dir = TempDir::new().unwrap();
    let input = dir.path().join("input");
    let roots = ["a", "b"].map(|name| dir.path().join(name));
    let place = |root: &Path, name: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    for root in &roots {
        FILES.iter().for_each(|name| symlink(&input, place(root, name)).unwrap());
    }
    for (name, text) in LEADING {
        fs::write(place(&roots[0], name), text).unwrap();
        symlink(&input, place(&roots[1], name)).unwrap();
    }
    Machine { input, roots, _dir: dir }
});

/// Reads the input as each file of the kernel.
pub fn kernel_files(bytes: &[u8]) -> bool {
    let machine = &*MACHINE;
    fs::write(&machine.input, bytes).unwrap();
    for root in &machine.roots {
        bounded(|| {
            read(root);
            true
        });
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(mappings) = proc::parse_maps(&text) {
        assert!(mappings.iter().all(|m| m.range.start <= m.range.end));
    }
    let _ = (proc::parse_smaps(&text), proc::parse_zoneinfo(&text));
    true
}

fn read(root: &Path) {
    let _ = (proc::mappings(root, PID), proc::code(root, PID), proc::usage(root, PID));
    let _ = (proc::stat(root, PID), proc::comm(root, PID), proc::command(root, PID));
    let _ = (proc::resident(root, PID), proc::swapped(root, PID), proc::policies(root, PID));
    let _ = (proc::threads(root, PID, 100), proc::tids(root, PID), proc::children(root, PID));
    let _ = (proc::thread_comm(root, PID, PID), proc::is_runnable(root, PID, PID));
    let _ = proc::holdings(root, PID, &proc::Holdings::default());
    let _ = (proc::buddyinfo(root), proc::pagetypeinfo(root), proc::meminfo(root));
    let _ = (proc::vmstat(root), proc::zoneinfo(root), proc::system_ram(root));
    let _ = (proc::memory_block_size(root), proc::mountinfo(root), machine_pressure(root));
    let _ = path_of(root, PID);
    let _ = Functions::default().generated(root, 7, Some((root, "tmp/jit-7.dump")), 0x108);
    if let Ok(group) = Cgroup::find(root, Path::new("g")) {
        let _ = (group.memory_current(), group.memory_max(), group.memory_high());
        let _ = (group.memory_stat(), group.memory_pressure(), group.processes());
    }
    if let Some(group) = Cgroup::of_process(root, PID) {
        let _ = group.headroom();
    }
}
