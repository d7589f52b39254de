//! Settings of the machine that a run changes, restored on drop; and counters of the machine.

use std::fs::{read_to_string, write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use isotherm_linux::cgroup::machine_pressure;
use isotherm_linux::proc::{self, meminfo};

const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";

/// The setting of huge pages, restored on drop.
#[derive(Debug)]
pub struct HugePages {
    path: PathBuf,
    before: String,
}

impl HugePages {
    /// The present setting.
    pub fn now(root: &Path) -> Result<Self> {
        let path = root.join(THP);
        let cannot = || format!("cannot read {}", path.display());
        let text = read_to_string(&path).with_context(cannot)?;
        let chosen = text.split_once('[').and_then(|(_, t)| t.split_once(']'));
        let before = chosen.with_context(cannot)?.0.to_owned();
        Ok(HugePages { path, before })
    }

    /// Sets it: to `always`, or to `madvise`.
    pub fn set(root: &Path, always: bool) -> Result<Self> {
        let huge = HugePages::now(root)?;
        let word = if always { "always" } else { "madvise" };
        write(&huge.path, word).with_context(|| format!("cannot write {}", huge.path.display()))?;
        Ok(huge)
    }

    /// The command that restores it if this process is killed.
    pub fn how_to_restore(&self) -> String {
        format!("echo {} > {}", self.before, self.path.display())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(e) = write(&self.path, &self.before) {
            eprintln!("huge pages are not as they were ({e}): {}", self.how_to_restore());
        }
    }
}

/// Writes back dirty pages, and drops the kernel's caches.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches: this requires root")
}

/// Memory of the machine that is not free, in bytes.
pub fn used(root: &Path) -> Result<u64> {
    let memory = meminfo(root)?;
    Ok(memory.total.saturating_sub(memory.free))
}

/// The contents of a compressed device, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compressed {
    /// before compression
    pub held: u64,
    /// memory in use
    pub used: u64,
}

/// Reads `mm_stat` of a zram device (`Documentation/admin-guide/blockdev/zram.rst`).
pub fn compressed(root: &Path, device: &str) -> Result<Compressed> {
    let path = root.join("sys/block").join(device).join("mm_stat");
    let text = read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let numbers: Vec<u64> = text.split_whitespace().map_while(|n| n.parse().ok()).collect();
    let number = |i: usize| numbers.get(i).copied().context("mm_stat is cut off");
    Ok(Compressed { held: number(0)?, used: number(2)? })
}

/// Counters of the kernel since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// major faults, which wait for swap or a disk
    pub major_faults: u64,
    /// allocations with direct reclaim
    pub stalls: u64,
    /// time in which at least one task waited for memory, in microseconds
    pub pressure: u64,
}

impl KernelCounters {
    /// The present values. If the kernel does not count pressure, that is 0.
    pub fn read(root: &Path) -> Result<Self> {
        let vm = proc::vmstat(root)?;
        let of = |name: &str| vm.get(name).copied().unwrap_or(0);
        let stalls = vm.iter().filter(|(name, _)| name.starts_with("allocstall")).map(|(_, n)| n);
        let pressure = machine_pressure(root).map_or(0, |p| p.some.total.as_micros());
        Ok(KernelCounters {
            major_faults: of("pgmajfault"),
            stalls: stalls.sum(),
            pressure: u64::try_from(pressure).unwrap_or(u64::MAX),
        })
    }

    /// The sum of both.
    pub fn and(self, more: KernelCounters) -> KernelCounters {
        KernelCounters {
            major_faults: self.major_faults + more.major_faults,
            stalls: self.stalls + more.stalls,
            pressure: self.pressure + more.pressure,
        }
    }

    /// The increase since `before`.
    pub fn since(self, before: KernelCounters) -> KernelCounters {
        KernelCounters {
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            stalls: self.stalls.saturating_sub(before.stalls),
            pressure: self.pressure.saturating_sub(before.pressure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn huge_pages_are_put_back() {
        let root = tree(&[(THP, "always madvise [never]\n")]);
        let now = || read_to_string(root.path().join(THP)).unwrap();
        let set = HugePages::set(root.path(), true).unwrap();
        assert_eq!(now(), "always");
        assert!(set.how_to_restore().starts_with("echo never > "));
        drop(set);
        assert_eq!(now(), "never");
        assert!(HugePages::set(tree(&[]).path(), true).is_err());
    }

    #[test]
    fn counters_of_the_kernel() {
        let root = tree(&[
            ("proc/vmstat", "pgmajfault 7\nallocstall_normal 2\nallocstall_movable 3\n"),
            ("sys/block/zram4/mm_stat", "1000 200 300 0 300 0 0 0 0\n"),
        ]);
        let counts = KernelCounters::read(root.path()).unwrap();
        assert_eq!(counts, KernelCounters { major_faults: 7, stalls: 5, pressure: 0 });
        let later = KernelCounters { stalls: 9, ..counts };
        let since = later.since(counts);
        assert_eq!(since, KernelCounters { stalls: 4, ..KernelCounters::default() });
        assert_eq!(counts.and(since), later);
        let zram = compressed(root.path(), "zram4").unwrap();
        assert_eq!(zram, Compressed { held: 1000, used: 300 });
        assert!(compressed(root.path(), "zram5").is_err());
    }
}
