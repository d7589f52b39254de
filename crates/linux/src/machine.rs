//! The memory of the whole machine, by what the kernel's DAMON can reclaim. No page is read: the kernel
//! counts all of it, except for virtual machines, which the descriptors of processes show.

use std::path::Path;

use isotherm_core::{PAGE_SIZE, Unknown, UnknownPages};

use crate::damon::ExcludedMemory;
use crate::proc::{self, Holdings, ProcError};

/// The memory of a machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineMemory {
    /// all memory in use
    pub resident: u64,
    /// Memory that DAMON never reclaims, by reason: on no LRU list, or held. Memory with two reasons counts
    /// for both.
    pub unknown: UnknownPages<u64>,
    /// Memory that is unknown to isotherm's own monitors of processes, by reason, and that the kernel
    /// observes and reclaims. A virtual machine in shared memory counts for both reasons.
    pub seen_by_kernel: UnknownPages<u64>,
    /// lower bound of the memory of files that no process maps: mapped shared memory counts as mapped files
    pub unmapped_files: u64,
    /// memory of files, mapped or not, without shared memory
    pub files: u64,
}

/// Reads the figures.
///
/// # Errors
/// If `/proc` does not report them.
pub fn machine_memory(root: &Path) -> Result<MachineMemory, ProcError> {
    let m = proc::meminfo(root)?;
    let resident = m.total.saturating_sub(m.free);
    let elsewhere = [m.evictable, m.mlocked, m.hugetlb].into_iter().fold(0, u64::saturating_add);
    let unknown = [
        (Unknown::Mlocked, m.mlocked),
        (Unknown::Hugetlb, m.hugetlb),
        (Unknown::Dma, pinned(root)?),
        (Unknown::Special, resident.saturating_sub(elsewhere)),
    ];
    let seen = [(Unknown::Shared, m.shared), (Unknown::Kvm, guests(root))];
    Ok(MachineMemory {
        resident,
        unknown: by(unknown),
        seen_by_kernel: by(seen),
        unmapped_files: m.files.saturating_sub(m.mapped),
        files: m.files,
    })
}

impl MachineMemory {
    /// The figures if a scheme excludes this page cache, which is then unknown, with the reason `cache`.
    #[must_use]
    pub fn sparing(mut self, spared: ExcludedMemory) -> Self {
        let shared = &mut self.seen_by_kernel.0[Unknown::Shared.index()];
        self.unknown.0[Unknown::Cache.index()] = match spared {
            ExcludedMemory::Nothing => 0,
            ExcludedMemory::Unmapped => self.unmapped_files,
            // The filter does not count shared memory as anonymous either.
            ExcludedMemory::Files => self.files + std::mem::take(shared),
        };
        self
    }

    /// Unknown memory for any reason. Memory with two reasons counts twice, up to the memory in use.
    #[must_use]
    pub fn all_unknown(&self) -> u64 {
        self.unknown.total().min(self.resident)
    }
}

fn by(reasons: impl IntoIterator<Item = (Unknown, u64)>) -> UnknownPages<u64> {
    let mut pages = UnknownPages::default();
    for (why, bytes) in reasons {
        pages.0[why.index()] = bytes;
    }
    pages
}

/// Memory that devices hold at present: for VFIO, RDMA and fixed `io_uring` buffers permanently, for direct
/// I/O temporarily.
fn pinned(root: &Path) -> Result<u64, ProcError> {
    let counters = proc::vmstat(root)?;
    let count = |name: &str| counters.get(name).copied().unwrap_or_default();
    let pages = count("nr_foll_pin_acquired").saturating_sub(count("nr_foll_pin_released"));
    Ok(pages.saturating_mul(PAGE_SIZE))
}

/// Resident memory of the processes that hold a virtual machine and no device.
fn guests(root: &Path) -> u64 {
    let held = |pid| proc::holdings(root, pid, &Holdings::default()).everything;
    let holds = |&pid: &i32| held(pid) == Some(Unknown::Kvm);
    let guests = proc::pids(root).into_iter().filter(holds);
    guests.filter_map(|pid| Some(proc::resident(root, pid).ok()?.all)).sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::put;

    fn bytes(pages: &UnknownPages<u64>, why: Unknown) -> u64 {
        pages.0[why.index()]
    }

    fn machine(uses: &str, vmstat: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let all = "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\n";
        put(root.path(), "proc/meminfo", &format!("{all}{uses}"));
        put(root.path(), "proc/vmstat", vmstat);
        root
    }

    #[test]
    fn frames_on_no_list_belong_to_the_kernel() {
        let root = machine(
            "Active: 100 kB\nInactive: 300 kB\nMlocked: 50 kB\nHugetlb: 200 kB\nShmem: 70 kB\n",
            "nr_foll_pin_acquired 30\nnr_foll_pin_released 25\n",
        );
        let m = machine_memory(root.path()).unwrap();
        assert_eq!(m.resident, 700 << 10);
        let of = |why| bytes(&m.unknown, why) >> 10;
        let reasons = [Unknown::Mlocked, Unknown::Hugetlb, Unknown::Dma, Unknown::Special];
        assert_eq!(reasons.map(of), [50, 200, 20, 50]);
        assert_eq!(m.all_unknown(), 320 << 10);
        assert_eq!(m.seen_by_kernel.total(), 70 << 10);
    }

    #[test]
    fn page_cache_that_a_filter_spares_is_unknown() {
        let root = machine(
            "Active: 100 kB\nInactive: 300 kB\nActive(file): 60 kB\nInactive(file): 90 kB\n\
             Mapped: 40 kB\nShmem: 70 kB\n",
            "nr_foll_pin_acquired 0\n",
        );
        let cache = |spared| {
            let m = machine_memory(root.path()).unwrap().sparing(spared);
            let seen = bytes(&m.seen_by_kernel, Unknown::Shared);
            (bytes(&m.unknown, Unknown::Cache) >> 10, seen >> 10, m.all_unknown() >> 10)
        };
        assert_eq!(cache(ExcludedMemory::Nothing), (0, 70, 300));
        assert_eq!(cache(ExcludedMemory::Unmapped), (110, 70, 410));
        assert_eq!(cache(ExcludedMemory::Files), (220, 0, 520));
    }

    #[test]
    fn memory_counted_twice_is_capped() {
        // Huge pages that a device holds.
        let root = machine("Hugetlb: 600 kB\n", "nr_foll_pin_acquired 150\n");
        let m = machine_memory(root.path()).unwrap();
        assert_eq!(
            [Unknown::Hugetlb, Unknown::Dma].map(|why| bytes(&m.unknown, why)),
            [600 << 10; 2]
        );
        assert_eq!(m.all_unknown(), m.resident);
        // The counters of all CPUs are not read at the same instant.
        let root = machine("", "nr_foll_pin_acquired 1\nnr_foll_pin_released 2\n");
        assert_eq!(bytes(&machine_memory(root.path()).unwrap().unknown, Unknown::Dma), 0);
    }

    #[test]
    fn memory_of_guests_belongs_to_their_hypervisor() {
        let root = machine("", "nr_foll_pin_acquired 0\n");
        for (pid, links) in [
            ("7", &["anon_inode:kvm-vm"][..]),
            ("8", &["pipe:[3]"]),
            ("9", &["anon_inode:kvm-vm", "/dev/vfio/12"]),
        ] {
            put(root.path(), &format!("proc/{pid}/statm"), "100 10 4 1 0 20 0\n");
            let fds = root.path().join("proc").join(pid).join("fd");
            std::fs::create_dir(&fds).unwrap();
            for (fd, link) in links.iter().enumerate() {
                symlink(link, fds.join(fd.to_string())).unwrap();
            }
        }
        let seen = machine_memory(root.path()).unwrap().seen_by_kernel;
        assert_eq!(bytes(&seen, Unknown::Kvm), 10 * PAGE_SIZE, "what a device holds is pinned");
    }

    #[test]
    fn this_machine() {
        let m = machine_memory("/".as_ref()).unwrap();
        assert!(bytes(&m.unknown, Unknown::Special) > 0, "a kernel takes memory");
        assert!(m.all_unknown() <= m.resident);
    }
}
