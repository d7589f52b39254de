//! Checks whether physical memory can be watched.

use std::collections::BTreeMap;
use std::path::Path;

use super::{CheckResult, Finding};
use crate::ops::Physical;
use crate::physical::{RamRange, physical_memory};

/// The memory of the machine, and whether idle page tracking can observe it. Another check tries kernel DAMON,
/// the alternative.
pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let what = "physical memory";
    let memory = match physical_memory(root) {
        Ok(memory) => memory,
        Err(e) => return vec![Finding::new(what, CheckResult::Limited, e.to_string())],
    };
    let by_idle = match Physical::new(root, &memory) {
        Ok(_) => (CheckResult::Works, "page_idle can observe it".to_owned()),
        Err(e) => (CheckResult::Limited, e.to_string()),
    };
    vec![
        Finding::new(what, CheckResult::Works, zones_by_node(&memory)),
        Finding::new("physical memory by page_idle", by_idle.0, by_idle.1),
    ]
}

/// `node 0: DMA 15 MiB, Normal 1008 MiB`, one line per node.
fn zones_by_node(memory: &[RamRange]) -> String {
    let mut nodes: BTreeMap<u32, Vec<(&str, u64)>> = BTreeMap::new();
    for stretch in memory {
        let zones = nodes.entry(stretch.node).or_default();
        match zones.iter_mut().find(|(zone, _)| *zone == &*stretch.zone) {
            Some((_, bytes)) => *bytes += stretch.range.len(),
            None => zones.push((&stretch.zone, stretch.range.len())),
        }
    }
    let zone = |(name, bytes): &(&str, u64)| format!("{name} {} MiB", bytes >> 20);
    let line = |(node, zones): (&u32, &Vec<_>)| {
        format!("node {node}: {}", zones.iter().map(zone).collect::<Vec<_>>().join(", "))
    };
    nodes.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::AddrRange;

    #[test]
    fn nodes_and_their_zones() {
        let stretch = |start: u64, end: u64, node, zone: &str| RamRange {
            range: AddrRange::new(start << 20, end << 20),
            node,
            zone: zone.into(),
        };
        let memory = [
            stretch(0, 1, 0, "DMA"),
            stretch(2, 16, 0, "DMA"),
            stretch(16, 64, 0, "DMA32"),
            stretch(64, 128, 1, "DMA32"),
        ];
        assert_eq!(
            zones_by_node(&memory),
            "node 0: DMA 15 MiB, DMA32 48 MiB\nnode 1: DMA32 64 MiB"
        );
    }

    #[test]
    fn a_machine_without_iomem() {
        let root = tempfile::tempdir().unwrap();
        let found = findings(root.path());
        assert!(found.len() == 1 && found[0].state == CheckResult::Limited, "{found:?}");
        assert!(found[0].detail.contains("proc/iomem"));
    }
}
