//! Metrics for the goals and watermarks of schemes: of the machine, and of control groups.

use std::path::Path;

use isotherm_core::scheme::MemoryMetrics;
use isotherm_mm::unusable_free_index;

use crate::cgroup::{Cgroup, CgroupError, machine_pressure};
use crate::ops::survey::pressure;
use crate::proc::{self, ProcError};

/// A huge page has 2^9 pages.
const HUGE_ORDER: usize = 9;

/// Pressure and resident memory of the machine; `None` for a figure that cannot be read.
#[must_use]
pub fn of_machine(root: &Path) -> MemoryMetrics {
    let resident = proc::meminfo(root).ok().map(|m| m.total.saturating_sub(m.free));
    MemoryMetrics { pressure: pressure::of_machine(root), resident, working_set: None }
}

/// The same for a control group, with the groups below it.
#[must_use]
pub fn of_group(group: &Cgroup) -> MemoryMetrics {
    let resident = group.memory_current().ok();
    MemoryMetrics { pressure: pressure::of_group(group), resident, working_set: None }
}

/// Checks that the kernel counts the time for which tasks wait for memory, in `group` or on the machine.
///
/// # Errors
/// The reason if it does not.
pub fn counts_stalls(root: &Path, group: Option<&Cgroup>) -> Result<(), CgroupError> {
    match group {
        Some(group) => group.memory_pressure().map(drop),
        None => machine_pressure(root).map(drop).ok_or(CgroupError::Absent {
            path: root.join("proc/pressure/memory"),
            why: "this requires a kernel with CONFIG_PSI that was not booted with psi=0",
        }),
    }
}

/// The share of the machine's memory that is free, of 10,000.
///
/// # Errors
/// If it cannot be read.
pub fn free(root: &Path) -> Result<u32, ProcError> {
    let memory = proc::meminfo(root)?;
    Ok(bp(memory.free as f64 / memory.total.max(1) as f64))
}

/// Unusable free space index of the machine for huge pages, of 10,000, over all zones together.
///
/// # Errors
/// If it cannot be read.
pub fn fragmentation(root: &Path) -> Result<u32, ProcError> {
    let mut all: Vec<u64> = Vec::new();
    for zone in proc::buddyinfo(root)? {
        all.resize(all.len().max(zone.by_order.len()), 0);
        all.iter_mut().zip(zone.by_order).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    }
    Ok(bp(unusable_free_index(&all, HUGE_ORDER).unwrap_or(1.0)))
}

fn bp(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 10_000.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join("proc").join(name), text).unwrap();
        }
        root
    }

    #[test]
    fn free_memory_and_its_usable_part() {
        let root = machine(&[
            ("meminfo", "MemTotal: 8000 kB\nMemFree: 2000 kB\nMemAvailable: 4000 kB\n"),
            (
                "buddyinfo",
                "Node 0, zone DMA 512 0 0 0 0 0 0 0 0 1\nNode 1, zone Normal 0 0 0 0 0 0 0 0 0 1\n",
            ),
        ]);
        assert_eq!(free(root.path()).unwrap(), 2500);
        assert_eq!(fragmentation(root.path()).unwrap(), 3333);
        assert_eq!(of_machine(root.path()).resident, Some(6000 << 10));
        let none = machine(&[]);
        assert!(free(none.path()).is_err() && fragmentation(none.path()).is_err());
        assert_eq!(of_machine(none.path()).resident, None);
    }

    #[test]
    fn stalls_that_the_kernel_does_not_count() {
        let why = counts_stalls(machine(&[]).path(), None).unwrap_err().to_string();
        assert!(why.contains("CONFIG_PSI") && why.contains("psi=0"), "{why}");
        let line = "avg10=0.00 avg60=0.00 avg300=0.00 total=7";
        let text = format!("some {line}\nfull {line}\n");
        counts_stalls(machine(&[("pressure/memory", &text)]).path(), None).unwrap();
    }

    #[test]
    fn this_machine() {
        let root = Path::new("/");
        assert!((1..=10_000).contains(&free(root).unwrap()));
        assert!(fragmentation(root).unwrap() <= 10_000);
    }
}
