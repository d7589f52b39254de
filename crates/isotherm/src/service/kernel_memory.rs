//! Amount of memory whose heat is unknown, and which is therefore not reclaimed, while the kernel reclaims.

use std::collections::BTreeMap;

use isotherm_core::{Unknown, UnknownPages};
use isotherm_linux::damon::ExcludedMemory;
use isotherm_linux::{MachineMemory, machine_memory};
use serde::Serialize;

use crate::ROOT;

/// Memory of the machine, in bytes. The maps contain only reasons with more than 0 bytes.
#[derive(Debug, PartialEq, Serialize)]
pub struct MachineBytes {
    resident: u64,
    unknown: u64,
    unknown_by: BTreeMap<&'static str, u64>,
    seen_by_kernel: BTreeMap<&'static str, u64>,
}

impl MachineBytes {
    /// The present state, where `spared` memory is left alone; `None` if the kernel does not report it.
    pub fn now(spared: ExcludedMemory) -> Option<Self> {
        machine_memory(ROOT.as_ref()).ok().map(|m| MachineBytes::of(&m.sparing(spared)))
    }

    fn of(m: &MachineMemory) -> Self {
        MachineBytes {
            resident: m.resident,
            unknown: m.all_unknown(),
            unknown_by: by(&m.unknown),
            seen_by_kernel: by(&m.seen_by_kernel),
        }
    }
}

fn by(bytes: &UnknownPages<u64>) -> BTreeMap<&'static str, u64> {
    let of = Unknown::ALL.into_iter().map(|why| (why.name(), bytes.0[why.index()]));
    of.filter(|&(_, bytes)| bytes > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_names_that_they_have_elsewhere() {
        let mut m = MachineMemory { resident: 9, ..MachineMemory::default() };
        m.unknown.0[Unknown::Hugetlb.index()] = 4;
        m.seen_by_kernel.0[Unknown::Shared.index()] = 2;
        let json = serde_json::to_value(MachineBytes::of(&m)).unwrap();
        let want = serde_json::json!({
            "resident": 9, "unknown": 4, "unknown_by": { "hugetlb": 4 }, "seen_by_kernel": { "shared": 2 },
        });
        assert_eq!(json, want);
    }
}
