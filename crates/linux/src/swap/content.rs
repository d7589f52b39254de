//! The content of a swap device, its owners, and whether it fits in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SwapError;
use crate::cgroup::Cgroup;
use crate::proc::{self, meminfo};

/// Memory that must remain available after the content was brought back, in bytes.
const SPARE_BYTES: u64 = 64 << 20;
/// Maximal number of processes that a message names.
const MAX_NAMED: usize = 5;

/// A process with memory in swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwappedProcess {
    /// its pid
    pub pid: i32,
    /// its name
    pub comm: String,
    /// its bytes in swap, on all devices (`VmSwap`)
    pub swapped: u64,
    /// whether it belongs to others: it is neither the caller nor one of its descendants
    pub foreign: bool,
}

/// The content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapContent {
    /// the device
    pub device: PathBuf,
    /// the name that it was given when it was made
    pub name: Option<String>,
    /// bytes in use (`/proc/swaps`)
    pub used: u64,
    /// Processes with memory in swap, the largest first. The kernel does not report the device: if several are
    /// in use, the memory may be on another one.
    pub holders: Vec<SwappedProcess>,
}

impl fmt::Display for SwapContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.display();
        let name = self.name.as_ref().map_or_else(String::new, |n| format!(" (--name {n})"));
        write!(f, "{device}{name} holds {}", mib(self.used))?;
        if self.used > 0 && !self.holders.is_empty() {
            write!(f, "; in swap are {}", list(self.holders.iter()))?;
        }
        Ok(())
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn list<'a>(holders: impl Iterator<Item = &'a SwappedProcess>) -> String {
    // A name may contain characters that a terminal would interpret.
    let name = |h: &SwappedProcess| {
        format!("{} of {} (pid {})", mib(h.swapped), h.comm.escape_debug(), h.pid)
    };
    let all: Vec<String> = holders.map(name).collect();
    let more = all.len().saturating_sub(MAX_NAMED);
    let named = all.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

impl SwapContent {
    /// The current content; `caller` and its descendants are not foreign.
    pub fn of(root: &Path, device: PathBuf, name: Option<String>, caller: Option<i32>) -> Self {
        let used = used(root, &device);
        let mut content = SwapContent { device, name, used, holders: Vec::new() };
        if used == 0 {
            return content;
        }
        let own = below(root, caller);
        let holder = |pid| {
            let swapped = proc::swapped(root, pid).ok().filter(|&bytes| bytes > 0)?;
            let comm = proc::comm(root, pid).ok()?;
            Some(SwappedProcess { pid, comm, swapped, foreign: !own.contains(&pid) })
        };
        content.holders = proc::pids(root).into_iter().filter_map(holder).collect();
        content.holders.sort_by_key(|h| std::cmp::Reverse(h.swapped));
        content
    }

    /// Checks that only the caller's own processes have memory in swap.
    ///
    /// # Errors
    /// If other processes have memory in swap.
    pub fn check_foreign(&self) -> Result<(), SwapError> {
        let foreign: Vec<&SwappedProcess> = self.holders.iter().filter(|h| h.foreign).collect();
        if foreign.is_empty() {
            return Ok(());
        }
        let who = list(foreign.into_iter());
        Err(SwapError::Foreign { device: self.device.clone(), who })
    }

    /// Checks that the content fits in memory, and in the limits of the cgroups of its owners.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn check_fits(&self, root: &Path) -> Result<(), SwapError> {
        if self.used == 0 {
            return Ok(());
        }
        let available = meminfo(root)?.available;
        let too_much = |place: String, need: u64, room: u64| SwapError::NoRoom {
            device: self.device.clone(),
            place,
            need: mib(need),
            room: mib(room),
        };
        if self.used.saturating_add(SPARE_BYTES) > available {
            return Err(too_much("memory".to_owned(), self.used, available));
        }
        for (group, need) in self.by_group(root) {
            let need = need.min(self.used);
            if let Some(room) = group.room().filter(|&room| room < need) {
                let place = format!("the control group {}", group.dir().display());
                return Err(too_much(place, need, room));
            }
        }
        Ok(())
    }

    /// The bytes that would return to each cgroup, including its descendants.
    fn by_group(&self, root: &Path) -> Vec<(Cgroup, u64)> {
        let mut groups: BTreeMap<PathBuf, (Cgroup, u64)> = BTreeMap::new();
        for holder in &self.holders {
            let Some(group) = Cgroup::charged_for(root, holder.pid) else { continue };
            for group in group.with_those_above() {
                let dir = group.dir().to_owned();
                groups.entry(dir).or_insert((group, 0)).1 += holder.swapped;
            }
        }
        groups.into_values().collect()
    }
}

/// Bytes in use on a device; 0 if it is not used for swap.
fn used(root: &Path, device: &Path) -> u64 {
    let text = std::fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let Ok(below) = device.strip_prefix(root) else { return 0 };
    let name = Path::new("/").join(below);
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (*fields.first()? == name.to_str()?).then(|| fields.get(3)?.parse::<u64>().ok())?
    };
    text.lines().find_map(of).unwrap_or(0) << 10
}

/// Whether all swap is in compressed memory: zram, or a disk behind zswap. `None` if there is no swap.
#[must_use]
pub fn is_compressed(root: &Path) -> Option<bool> {
    let zswap = std::fs::read_to_string(root.join("sys/module/zswap/parameters/enabled"));
    let has_zswap = zswap.is_ok_and(|text| text.trim() == "Y");
    let text = std::fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let mut devices =
        text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).peekable();
    devices.peek()?;
    Some(has_zswap || devices.all(|device| device.starts_with("/dev/zram")))
}

/// Mean time to read a page of swap on a disk: that of all reads from disks so far. `None` if swap is in compressed
/// memory, or if nothing was read.
#[must_use]
pub fn time_of_fault(root: &Path) -> Option<Duration> {
    if is_compressed(root)? { None } else { proc::time_of_read(root) }
}

/// A process and all of its descendants; empty for pid 1.
fn below(root: &Path, top: Option<i32>) -> BTreeSet<i32> {
    let Some(top) = top.filter(|&pid| pid > 1) else { return BTreeSet::new() };
    let mut found = BTreeSet::from([top]);
    let mut open = vec![top];
    let parent = |pid| Some((proc::stat(root, pid).ok()?.ppid, pid));
    let parents: Vec<(i32, i32)> = proc::pids(root).into_iter().filter_map(parent).collect();
    while let Some(pid) = open.pop() {
        for &(_, child) in parents.iter().filter(|(parent, _)| *parent == pid) {
            if found.insert(child) {
                open.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{put, tree};

    #[test]
    fn swap_may_be_compressed() {
        let of = |swaps: &str, zswap: &str| {
            let head = "Filename Type Size Used Priority\n";
            let root = tree([("proc/swaps", &*format!("{head}{swaps}"))]);
            put(root.path(), "sys/module/zswap/parameters/enabled", zswap);
            is_compressed(root.path())
        };
        assert_eq!(of("", "N\n"), None);
        assert_eq!(of("/dev/zram0 partition 99 0 100\n", "N\n"), Some(true));
        assert_eq!(
            of("/dev/zram0 partition 9 0 1\n/dev/sda2 partition 9 0 1\n", "N\n"),
            Some(false)
        );
        assert_eq!(of("/swapfile file 99 0 -2\n", "Y\n"), Some(true));
    }

    #[test]
    fn a_fault_takes_as_long_as_a_read_from_the_disk() {
        let of = |swaps: &str| {
            let head = "Filename Type Size Used Priority\n";
            let disks = " 8 0 sda 10 0 800 300 0 0 0 0 0 0 0\n";
            let swaps = format!("{head}{swaps}");
            time_of_fault(tree([("proc/swaps", &*swaps), ("proc/diskstats", disks)]).path())
        };
        assert_eq!(of("/dev/sda2 partition 9 0 1\n"), Some(Duration::from_millis(3)));
        assert_eq!(of("/dev/zram0 partition 9 0 1\n"), None);
        assert_eq!(of(""), None);
    }

    /// Process 20 is a child of 10, and 30 belongs to another program; both are in a group, of version 1 or 2.
    fn machine(mount: &str, files: [(&str, &str); 3]) -> tempfile::TempDir {
        let stat = |pid: i32, ppid: i32, comm: &str| {
            format!("{pid} ({comm}) S {ppid} 0 0 0 -1 0 0 0 0 0 0 0 0 0 0 0 1 0 9 0 0\n")
        };
        let root = tree([
            (
                "proc/swaps",
                "Filename Type Size Used Priority\n/dev/zram7 partition 999999 40960 32767\n",
            ),
            ("proc/meminfo", "MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: 500000 kB\n"),
            ("proc/self/mountinfo", mount),
        ]);
        for (pid, ppid, comm, kib) in
            [(10, 1, "sh", 0), (20, 10, "app", 20480), (30, 1, "db", 10240)]
        {
            let dir = format!("proc/{pid}");
            put(root.path(), &format!("{dir}/stat"), &stat(pid, ppid, comm));
            put(root.path(), &format!("{dir}/comm"), &format!("{comm}\n"));
            put(root.path(), &format!("{dir}/status"), &format!("VmSwap:\t{kib} kB\n"));
            put(root.path(), &format!("{dir}/cgroup"), "4:memory:/g\n0::/g\n");
        }
        put(root.path(), "cg/g/cgroup.procs", "");
        for (name, text) in files {
            put(root.path(), &format!("cg/g/{name}"), text);
        }
        root
    }

    fn content(root: &tempfile::TempDir, caller: i32) -> SwapContent {
        SwapContent::of(root.path(), root.path().join("dev/zram7"), Some("x".into()), Some(caller))
    }

    const V2: &str = "26 23 0:24 / /cg rw - cgroup2 cgroup2 rw\n";
    const V1: &str = "35 31 0:32 / /cg rw - cgroup cgroup rw,memory\n";

    #[test]
    fn pages_of_others_are_reported_by_name() {
        let root =
            machine(V2, [("memory.current", "0"), ("memory.max", "max"), ("memory.stat", "")]);
        let of_the_shell = content(&root, 10);
        assert_eq!(of_the_shell.used, 40 << 20);
        let said = of_the_shell.check_foreign().unwrap_err().to_string();
        assert!(said.contains("db (pid 30)") && !said.contains("app"), "{said}");
        assert!(said.contains("--force"), "{said}");
        let all = content(&root, 1);
        assert!(all.holders.iter().all(|h| h.foreign), "all are below the first process");
        let text = all.to_string();
        assert!(text.contains("zram7 (--name x) holds 40.0 MiB"), "{text}");
        assert!(text.contains("20.0 MiB of app (pid 20), 10.0 MiB of db (pid 30)"), "{text}");
    }

    /// Found by an audit: `swap restore` printed the names of other users' processes as they were.
    #[test]
    fn a_name_does_not_steer_the_terminal() {
        let root =
            machine(V2, [("memory.current", "0"), ("memory.max", "max"), ("memory.stat", "")]);
        put(root.path(), "proc/30/comm", "\u{1b}]0;x\u{7}\u{202e}\n");
        let content = content(&root, 10);
        let (shown, refused) = (content.to_string(), content.check_foreign().unwrap_err());
        for text in [shown, refused.to_string()] {
            assert!(text.contains("]0;x") && text.contains("(pid 30)"), "{text}");
            assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
        }
    }

    /// 30 MiB must return to the group, which is at its limit except for droppable files.
    #[test]
    fn content_that_does_not_fit_stays_in_swap() {
        let mib = |n: u64| (n << 20).to_string();
        for (mount, current, max, files) in [
            (V2, "memory.current", "memory.max", "file"),
            (V1, "memory.usage_in_bytes", "memory.limit_in_bytes", "total_cache"),
        ] {
            let check = |cache: u64| {
                let stat = format!("{files} {}\n", cache << 20);
                let root =
                    machine(mount, [(current, &mib(95)), (max, &mib(100)), ("memory.stat", &stat)]);
                if mount == V2 {
                    put(root.path(), "cg/g/cgroup.controllers", "memory");
                }
                content(&root, 10).check_fits(root.path()).map_err(|e| e.to_string())
            };
            let said = check(0).unwrap_err();
            for part in ["control group", "/cg/g", "30.0 MiB", "5.0 MiB"] {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert_eq!(check(60), Ok(()), "{mount}");
        }
        let root =
            machine(V2, [("memory.current", "0"), ("memory.max", "max"), ("memory.stat", "")]);
        put(
            root.path(),
            "proc/meminfo",
            "MemTotal: 90000 kB\nMemFree: 1 kB\nMemAvailable: 50000 kB\n",
        );
        let said = content(&root, 10).check_fits(root.path()).unwrap_err().to_string();
        assert!(said.contains("40.0 MiB") && said.contains("memory"), "{said}");
    }
}
