//! `/proc/buddyinfo`: free blocks of each zone by order.

use std::path::Path;

use super::{ProcError, read_limited};

/// Enough for 1024 nodes of 6 zones.
const LIMIT: u64 = 4 << 20;
/// All kernels have fewer orders.
const MAX_ORDERS: usize = 64;

/// The free blocks of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeBlocks {
    /// the node
    pub node: u32,
    /// the name of the zone
    pub zone: String,
    /// blocks of 2^i pages, at index i
    pub by_order: Vec<u64>,
}

/// Reads `/proc/buddyinfo`. The file does not list zones without memory.
///
/// # Errors
/// If the file does not exist, or a line does not describe a zone.
pub fn buddyinfo(root: &Path) -> Result<Vec<FreeBlocks>, ProcError> {
    let path = root.join("proc/buddyinfo");
    let text = read_limited(&path, LIMIT)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| parse(line).ok_or_else(|| ProcError::parse(&path, line))).collect()
}

/// `Node 0, zone    DMA32      1      3 ...`
fn parse(line: &str) -> Option<FreeBlocks> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone")?;
    let mut words = rest.split_whitespace();
    let zone = words.next()?.to_owned();
    let by_order: Vec<u64> = words.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let plausible = (1..=MAX_ORDERS).contains(&by_order.len());
    plausible.then_some(FreeBlocks { node: node.trim().parse().ok()?, zone, by_order })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_zones() {
        let text = include_str!("../../tests/fixtures/buddyinfo/6.1");
        let zones: Vec<FreeBlocks> = text.lines().map(|l| parse(l).unwrap()).collect();
        let names: Vec<(u32, &str)> = zones.iter().map(|z| (z.node, z.zone.as_str())).collect();
        assert_eq!(names, [(0, "DMA"), (0, "DMA32"), (1, "DMA32"), (2, "Normal")]);
        assert_eq!(zones[1].by_order, [1, 3, 0, 1, 2, 0, 3, 0, 2, 2, 228]);
        for line in ["", "Node 0, zone", "Node x, zone DMA 1", "Node 0, zone DMA 1 x", "zone DMA"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn this_machine() {
        let zones = buddyinfo("/".as_ref()).unwrap();
        assert!(zones.iter().any(|z| z.by_order.iter().sum::<u64>() > 0));
    }
}
