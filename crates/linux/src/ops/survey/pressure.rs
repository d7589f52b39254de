//! Memory pressure on a process: that of its cgroup, or of the machine.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{Nanos, PAGE_SIZE, Pressure};

use crate::cgroup::{Cgroup, MACHINE_PRESSURE, Version, machine_pressure, parse_pressure};
use crate::proc::{self, pid_file, read_up_to};

/// If more than 1/10 of the machine's memory is available, its headroom is not limited.
const PLENTY_DIVISOR: u64 = 10;

/// Values older than this are read again.
const MAX_READING_AGE: Duration = Duration::from_millis(100);
/// The same limit while no task of the machine has waited for memory.
const MAX_AGE_IF_CALM: Duration = Duration::from_secs(5);
/// A cgroup is forgotten this long after its last use.
const KEEP_UNUSED: Duration = Duration::from_secs(60);
/// Largest size of `/proc/PID/cgroup` that is read, in bytes.
const MAX_CGROUP_FILE_BYTES: u64 = 64 << 10;

/// The pressure on processes, cached by the contents of `/proc/PID/cgroup`: hundreds of processes of one cgroup
/// are under the same pressure, and reading it opens a dozen files.
///
/// The kernel counts all reclaim as waiting for memory: that of kswapd, direct reclaim by tasks, and reclaim of
/// cgroups at their limits. While no task of the machine has waited, no reclaim counter has changed.
#[derive(Debug)]
pub(crate) struct PressureCache {
    root: PathBuf,
    of: HashMap<String, CachedPressure>,
    machine: MachineReclaim,
    waits: MemoryStalls,
}

/// The pressure on a cgroup, and when it was read.
#[derive(Debug)]
struct CachedPressure {
    pressure: Option<Pressure>,
    /// time of the last partial or complete reading
    at: Nanos,
    whole_at: Nanos,
    /// total time for which tasks of the machine had waited at that reading; `None` if the kernel does not
    /// count it
    waited: Option<Duration>,
    /// the cgroup, if it or an ancestor has a limit
    limited: Option<Cgroup>,
}

/// `/proc/pressure/memory`.
#[derive(Debug)]
struct MemoryStalls(Option<File>);

impl MemoryStalls {
    /// Total time for which some task of the machine has waited for memory; `None` if the kernel does not count
    /// it.
    fn some(&self) -> Option<Duration> {
        let mut text = [0; 256];
        let len = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        Some(parse_pressure(str::from_utf8(text.get(..len)?).ok()?)?.some.total)
    }
}

/// Pages that reclaim of the whole machine has scanned. `pgscan_anon` also counts the scans of cgroups at their
/// limits, which are irrelevant to processes outside of them.
#[derive(Debug, Default)]
struct MachineReclaim {
    anon: u64,
    /// by kswapd and direct reclaim, for the whole machine
    global: u64,
    direct: u64,
    scanned: u64,
}

impl MachineReclaim {
    /// A machine that reads files reclaims page cache all the time, which is no shortage. It is a shortage if
    /// private memory is scanned, or if tasks have to reclaim memory themselves.
    fn scanned(&mut self, counters: &proc::Counters) -> u64 {
        let count = |name: &str| counters.get(name).copied().unwrap_or_default();
        let (anon, direct) = (count("pgscan_anon"), count("pgscan_direct"));
        let global = direct + count("pgscan_kswapd");
        let private = anon.saturating_sub(self.anon).min(global.saturating_sub(self.global));
        self.scanned += private + direct.saturating_sub(self.direct);
        (self.anon, self.global, self.direct) = (anon, global, direct);
        self.scanned
    }
}

impl PressureCache {
    /// An empty cache.
    pub fn new(root: &Path) -> Self {
        let waits = MemoryStalls(File::open(root.join(MACHINE_PRESSURE)).ok());
        let (of, machine) = (HashMap::new(), MachineReclaim::default());
        PressureCache { root: root.to_owned(), of, machine, waits }
    }

    /// The memory pressure on process `pid` at `now`.
    pub fn get(&mut self, pid: i32, now: Nanos) -> Option<Pressure> {
        let root = &self.root;
        let groups =
            read_up_to(&pid_file(root, pid, "cgroup"), MAX_CGROUP_FILE_BYTES).unwrap_or_default();
        if let Some(known) =
            self.of.get(&groups).filter(|known| now.since(known.at) <= MAX_READING_AGE)
        {
            return known.pressure;
        }
        let waited = self.waits.some();
        if let Some(known) = self.of.get_mut(&groups).filter(|known| known.is_calm(waited, now)) {
            known.at = now;
            let limited = known.limited.as_ref().and_then(Cgroup::headroom);
            let headroom = limited.into_iter().chain(machine_headroom(root)).min();
            known.pressure = known.pressure.map(|p| Pressure { headroom, ..p });
            return known.pressure;
        }
        let (pressure, limited) = pressure(root, pid, &mut self.machine);
        self.of.retain(|_, known| now.since(known.at) <= KEEP_UNUSED);
        let known = CachedPressure { pressure, at: now, whole_at: now, waited, limited };
        self.of.entry(groups).insert_entry(known).get().pressure
    }
}

impl CachedPressure {
    /// Whether only the headroom can have changed since the last complete reading.
    fn is_calm(&self, waited: Option<Duration>, now: Nanos) -> bool {
        waited.is_some() && waited == self.waited && now.since(self.whole_at) < MAX_AGE_IF_CALM
    }
}

/// The memory pressure on process `pid`, and its cgroup if that is limited. A cgroup of version 1 reports less
/// than the machine does, so it is read only if it has a limit. Then its failures at the limit count as
/// reclaim, and the waiting time is that of the machine.
fn pressure(
    root: &Path,
    pid: i32,
    machine: &mut MachineReclaim,
) -> (Option<Pressure>, Option<Cgroup>) {
    let group = Cgroup::charged_for(root, pid);
    let headroom = group.as_ref().and_then(Cgroup::headroom);
    let limited = group.clone().filter(|_| headroom.is_some());
    let group = group.filter(|g| g.version() == Version::V2 || headroom.is_some());
    let by_group = group.and_then(|g| pressure_of(&g, root));
    let pressure = by_group.or_else(|| by_machine(root, machine));
    let headroom = headroom.into_iter().chain(machine_headroom(root)).min();
    (pressure.map(|pressure| Pressure { headroom, ..pressure }), limited)
}

fn pressure_of(group: &Cgroup, root: &Path) -> Option<Pressure> {
    let own = of_group(group)?;
    Some(match group.version() {
        Version::V2 => own,
        Version::V1 => Pressure { scanned: group.failures(), stalled: stalled(root), ..own },
    })
}

/// Total time for which some task of the machine has waited for memory.
fn stalled(root: &Path) -> Duration {
    machine_pressure(root).map(|p| p.some.total).unwrap_or_default()
}

pub(crate) fn of_group(group: &Cgroup) -> Option<Pressure> {
    let stat = group.memory_stat().ok()?;
    Some(Pressure {
        scanned: stat.scanned,
        refaults: stat.refault_anon + stat.refault_file,
        private_refaults: stat.refault_anon,
        major_faults: stat.major_faults,
        stalled: group.memory_pressure().map(|p| p.some.total).unwrap_or_default(),
        headroom: None,
    })
}

pub(crate) fn of_machine(root: &Path) -> Option<Pressure> {
    by_machine(root, &mut MachineReclaim::default())
}

fn by_machine(root: &Path, machine: &mut MachineReclaim) -> Option<Pressure> {
    let counters = proc::vmstat(root).ok()?;
    let count = |name: &str| counters.get(name).copied().unwrap_or_default();
    let refaults = count("workingset_refault_anon");
    Some(Pressure {
        scanned: machine.scanned(&counters),
        refaults,
        private_refaults: refaults,
        major_faults: count("pgmajfault"),
        stalled: stalled(root),
        headroom: None,
    })
}

/// Bytes that remain until the zones reach their low watermarks; `None` while plenty is available.
fn machine_headroom(root: &Path) -> Option<u64> {
    let memory = proc::meminfo(root).ok()?;
    if memory.available > memory.total / PLENTY_DIVISOR {
        return None;
    }
    let zones = proc::zoneinfo(root).ok()?.zones;
    let low: u64 = zones.iter().map(|z| z.watermarks.low).sum();
    Some(memory.available.saturating_sub(low.saturating_mul(PAGE_SIZE)))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::testing::put;

    const MIB: u64 = 1 << 20;

    fn pressure_of(root: &Path, pid: i32) -> Option<Pressure> {
        pressure(root, pid, &mut MachineReclaim::default()).0
    }

    fn write(root: &TempDir, path: &str, text: &str) {
        put(root.path(), path, text);
    }

    /// A machine with plenty of memory and both versions of groups, and process 7 in one of them.
    fn machine(cgroup: &str) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/7/cgroup", cgroup),
            (
                "proc/self/mountinfo",
                "35 31 0:32 / /cgroup/memory rw - cgroup cgroup rw,memory\n\
                 26 23 0:24 / /cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n"),
            ("proc/vmstat", include_str!("../../../tests/fixtures/vmstat/7.2")),
            ("proc/zoneinfo", include_str!("../../../tests/fixtures/zoneinfo/7.2")),
            (
                "proc/pressure/memory",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000\n\
                 full avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
            ),
            ("cgroup/unified/a/cgroup.procs", ""),
            ("cgroup/unified/a/cgroup.controllers", "memory"),
            ("cgroup/unified/a/memory.current", "100663296"),
            ("cgroup/unified/a/memory.max", "max"),
            ("cgroup/unified/a/memory.high", "104857600"),
            ("cgroup/unified/a/b/cgroup.procs", "7"),
            ("cgroup/unified/a/b/cgroup.controllers", "memory"),
            ("cgroup/unified/a/b/memory.current", "50331648"),
            ("cgroup/unified/a/b/memory.max", "67108864"),
            ("cgroup/unified/a/b/memory.high", "max"),
            (
                "cgroup/unified/a/b/memory.stat",
                "anon 5\npgscan 9\nworkingset_refault_anon 3\nworkingset_refault_file 4\npgmajfault 2\n",
            ),
            ("cgroup/memory/old/cgroup.procs", "7"),
            ("cgroup/memory/old/memory.usage_in_bytes", "1048576"),
            ("cgroup/memory/old/memory.limit_in_bytes", "9223372036854771712"),
            ("cgroup/memory/old/memory.stat", "pgmajfault 1\ntotal_pgmajfault 8\n"),
            ("cgroup/memory/old/memory.failcnt", "41\n"),
            ("cgroup/memory/cgroup.procs", ""),
            ("cgroup/memory/memory.usage_in_bytes", "5242880"),
            ("cgroup/memory/memory.failcnt", "1\n"),
        ] {
            write(&root, path, text);
        }
        root
    }

    #[test]
    fn the_nearest_limit_above_counts() {
        let root = machine("0::/a/b\n");
        let p = pressure_of(root.path(), 7).unwrap();
        let want = Pressure { scanned: 9, refaults: 7, private_refaults: 3, major_faults: 2, ..p };
        assert_eq!((p, p.headroom), (want, Some(4 * MIB)), "of the group above");
        assert_eq!(p.stalled, Duration::ZERO, "not counted");
        write(&root, "cgroup/unified/a/memory.high", "max");
        assert_eq!(pressure_of(root.path(), 7).unwrap().headroom, Some(16 * MIB));
        write(&root, "cgroup/unified/a/b/memory.max", "max");
        assert_eq!(pressure_of(root.path(), 7).unwrap().headroom, None);
    }

    #[test]
    fn version_1_with_a_limit_and_without() {
        let root = machine("4:memory:/old\n0::/\n");
        let p = pressure_of(root.path(), 7).unwrap();
        assert_eq!((p.major_faults, p.stalled, p.headroom), (0, Duration::from_millis(2), None));
        write(&root, "cgroup/memory/old/memory.limit_in_bytes", "3145728");
        let p = pressure_of(root.path(), 7).unwrap();
        assert_eq!((p.major_faults, p.headroom), (8, Some(2 * MIB)));
        assert_eq!((p.scanned, p.stalled), (42, Duration::from_millis(2)), "limits, the machine");
    }

    /// First the group is at its limit, then kswapd runs, then a task allocates.
    #[test]
    fn reclaim_of_groups_is_not_that_of_the_machine() {
        let mut machine = MachineReclaim::default();
        let mut at = |anon: u64, kswapd: u64, direct: u64| {
            let named = ["pgscan_anon", "pgscan_kswapd", "pgscan_direct"].map(str::to_owned);
            machine.scanned(&named.into_iter().zip([anon, kswapd, direct]).collect())
        };
        let first = at(5000, 700, 0);
        assert_eq!(at(9000, 700, 0), first);
        assert_eq!(at(9100, 900, 0), first + 100);
        assert_eq!(at(9100, 990, 0), first + 100, "of files");
        assert_eq!(at(9100, 990, 32), first + 132);
    }

    #[test]
    fn without_a_group_the_machine_is_read() {
        for cgroup in ["0::/\n", "0::/../elsewhere\n", "0::/gone\n", "4:cpu:/a\n", ""] {
            let root = machine(cgroup);
            assert_eq!(pressure_of(root.path(), 7).unwrap().stalled, Duration::from_millis(2));
        }
        let root = machine("0::/\n");
        write(
            &root,
            "proc/meminfo",
            "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 409600 kB\n",
        );
        let headroom = pressure_of(root.path(), 7).unwrap().headroom.unwrap();
        assert!((200 * MIB..400 * MIB).contains(&headroom), "above the low watermarks: {headroom}");
    }

    /// Process 8 is in the group of 7, and 9 in none.
    #[test]
    fn processes_of_one_group_share_a_reading_for_a_moment() {
        let root = machine("0::/a/b\n");
        write(&root, "proc/8/cgroup", "0::/a/b\n");
        write(&root, "proc/9/cgroup", "0::/\n");
        let mut cache = PressureCache::new(root.path());
        let mut at = |ms: u64, pid| cache.get(pid, Nanos(ms * 1_000_000)).unwrap().major_faults;
        assert_eq!((at(1000, 7), at(1000, 8)), (2, 2));
        let more = "pgscan 9\nworkingset_refault_anon 3\nworkingset_refault_file 4\npgmajfault 5\n";
        write(&root, "cgroup/unified/a/b/memory.stat", more);
        wait_for_memory(&root, 2001);
        assert_eq!((at(1100, 8), at(1101, 8), at(1101, 7)), (2, 5, 5));
        assert_ne!(at(1101, 9), 5, "of the machine");
    }

    /// Some task of the machine has waited for so many us by now.
    fn wait_for_memory(root: &TempDir, us: u64) {
        let line = |word| format!("{word} avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
        write(root, "proc/pressure/memory", &(line("some") + &line("full")));
    }

    #[test]
    fn counters_are_read_again_after_a_stall() {
        let root = machine("0::/a/b\n");
        let mut cache = PressureCache::new(root.path());
        let mut at = |ms: u64| {
            let pressure = cache.get(7, Nanos(ms * 1_000_000)).unwrap();
            (pressure.major_faults, pressure.headroom)
        };
        let (faults, Some(headroom)) = at(1000) else { panic!("the group has a limit") };
        let stat = |faults| format!("pgscan 9\npgmajfault {faults}\n");
        write(&root, "cgroup/unified/a/b/memory.stat", &stat(50));
        write(&root, "cgroup/unified/a/memory.current", "101663296");
        let less = headroom - 1_000_000;
        assert_eq!(
            at(1500),
            (faults, Some(less)),
            "the headroom of the limit is reported all the same"
        );
        wait_for_memory(&root, 2001);
        assert_eq!((at(2000), at(2500)), ((50, Some(less)), (50, Some(less))));
        write(&root, "cgroup/unified/a/b/memory.stat", &stat(70));
        assert_eq!((at(6900).0, at(7100).0), (50, 70), "after five seconds in any case");
        std::fs::remove_file(root.path().join("proc/pressure/memory")).unwrap();
        let mut without = PressureCache::new(root.path());
        let mut at = |ms: u64| without.get(7, Nanos(ms * 1_000_000)).unwrap().major_faults;
        assert_eq!(at(1000), 70);
        write(&root, "cgroup/unified/a/b/memory.stat", &stat(90));
        assert_eq!(at(1500), 90, "where waiting is not counted, each time");
    }

    #[test]
    fn this_machine() {
        let me = crate::walker::own_pid();
        assert!(pressure_of("/".as_ref(), me).is_some());
    }
}
