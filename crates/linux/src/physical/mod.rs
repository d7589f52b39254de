//! Physical memory: its addresses, nodes and zones.

mod attribute;
mod part;

use std::path::Path;
use std::sync::Arc;

use isotherm_core::{AddrRange, Mapping, MappingKind, PAGE_SIZE};

use crate::proc::{ProcError, Zone, memory_block, memory_block_size, system_ram, zoneinfo};
use attribute::attribute;
pub use part::PhysicalSelection;
pub(crate) use part::joined_pages;

/// Maximum number of stretches, because firmware is input from outside. Machines have some tens.
const MAX_STRETCHES: usize = 65_536;

/// Adjacent System RAM of one zone of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RamRange {
    /// physical addresses, page-aligned
    pub range: AddrRange,
    /// its node
    pub node: u32,
    /// its zone: `DMA`, `DMA32`, `Normal`, `Movable`
    pub zone: Arc<str>,
}

impl RamRange {
    /// A mapping of the machine's memory, named by node and zone: `node 1 Normal`.
    #[must_use]
    pub fn mapping(&self) -> Mapping {
        Mapping {
            range: self.range,
            kind: MappingKind::Physical,
            name: format!("node {} {}", self.node, self.zone).into(),
            unknown: None,
        }
    }
}

/// The reason for which physical memory, or a part of it, cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PhysicalError {
    /// from `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// no memory found
    #[error("/proc/iomem and /proc/zoneinfo have no page of memory in common: is /proc mounted?")]
    None,
    /// too many stretches
    #[error(
        "physical memory has {0} separate ranges, and isotherm supports at most \
             {MAX_STRETCHES}: choose a part"
    )]
    Pieces(usize),
    /// no such node
    #[error("there is no memory on node {node}: nodes with memory are {}", list(.have))]
    NoNode {
        /// the node
        node: u32,
        /// the nodes with memory
        have: Vec<u32>,
    },
    /// no memory in a range
    #[error("there is no System RAM in {:#x}..{:#x}: see /proc/iomem for where it is", .0.start, .0.end)]
    NoRam(AddrRange),
    /// ranges and nodes exclude each other
    #[error("the chosen ranges have no memory of the chosen nodes")]
    Apart,
}

fn list(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// All physical memory that the kernel uses: sorted, disjoint, in stretches as long as possible.
///
/// # Errors
/// If `/proc/iomem` or `/proc/zoneinfo` does not show it; the former requires `CAP_SYS_ADMIN`.
pub fn physical_memory(root: &Path) -> Result<Vec<RamRange>, PhysicalError> {
    let ram = system_ram(root)?;
    let mut ram: Vec<AddrRange> = ram.iter().filter_map(|r| whole_pages(r.start, r.end)).collect();
    ram.sort();
    let zones: Vec<Zone> =
        zoneinfo(root)?.zones.into_iter().filter(|z| z.present > 0 && z.name != "Device").collect();
    let size = memory_block_size(root);
    let stretches = attribute(&ram, &zones, size, |number| memory_block(root, number));
    match stretches.len() {
        0 => Err(PhysicalError::None),
        n if n > MAX_STRETCHES => Err(PhysicalError::Pieces(n)),
        _ => Ok(stretches),
    }
}

fn whole_pages(start: u64, end: u64) -> Option<AddrRange> {
    let range = AddrRange::new(start.next_multiple_of(PAGE_SIZE), end - end % PAGE_SIZE);
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The iomem of the guests whose zoneinfo is a fixture.
    const IOMEM: &str = "00000000-00000fff : Reserved
00001000-0009fbff : System RAM
00100000-7fffffff : System RAM
  01000000-01ffffff : Kernel code
100000000-13fffffff : System RAM
";

    #[test]
    fn a_machine_with_three_nodes() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let write = |name: &str, text| std::fs::write(root.path().join(name), text).unwrap();
        write("proc/iomem", IOMEM);
        write("proc/zoneinfo", include_str!("../../tests/fixtures/zoneinfo/6.12"));
        let memory = physical_memory(root.path()).unwrap();
        let named = |m: Mapping| (m.name.to_string(), m.range.start >> 12, m.range.end >> 12);
        let named: Vec<_> = memory.iter().map(|s| named(s.mapping())).collect();
        let want = [
            ("node 0 DMA", 0x1, 0x9f),
            ("node 0 DMA", 0x100, 0x1000),
            ("node 0 DMA32", 0x1000, 0x40000),
            ("node 1 DMA32", 0x40000, 0x80000),
            ("node 2 Normal", 0x10_0000, 0x14_0000),
        ];
        assert_eq!(named, want.map(|(name, start, end)| (name.to_owned(), start, end)));
        write("proc/iomem", "100000000000-1000ffffffff : System RAM\n");
        assert!(matches!(physical_memory(root.path()), Err(PhysicalError::None)));
    }

    #[test]
    fn this_machine() {
        let memory = physical_memory("/".as_ref()).unwrap();
        assert!(memory.is_sorted_by(|a, b| a.range.end <= b.range.start));
        let total: u64 = memory.iter().map(|s| s.range.len()).sum();
        let present = |z: Zone| if z.name == "Device" { 0 } else { z.present * PAGE_SIZE };
        let zones: u64 = zoneinfo("/".as_ref()).unwrap().zones.into_iter().map(present).sum();
        assert!(total.abs_diff(zones) <= total / 100, "{total} {zones}");
    }
}
