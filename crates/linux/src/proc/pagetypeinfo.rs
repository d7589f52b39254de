//! `/proc/pagetypeinfo`: pageblocks of each zone by migrate type.

use std::path::Path;

use super::{ProcError, read_limited};

/// Enough for 1024 nodes of 6 zones.
const LIMIT: u64 = 16 << 20;

/// The pageblocks of a zone by migrate type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pageblocks {
    /// the node
    pub node: u32,
    /// the name of the zone
    pub zone: String,
    /// the kernel's name of each migrate type (`Movable`), with the number of its pageblocks
    pub by_type: Vec<(String, u64)>,
}

/// Reads `/proc/pagetypeinfo`, which requires root.
///
/// # Errors
/// If the file does not exist, or its tables of pageblocks cannot be parsed.
pub fn pagetypeinfo(root: &Path) -> Result<Vec<Pageblocks>, ProcError> {
    let path = root.join("proc/pagetypeinfo");
    let text = read_limited(&path, LIMIT)?;
    parse(&text).map_err(|line| ProcError::parse(&path, line))
}

const BLOCKS_HEADING: &str = "Number of blocks type";

/// Each node has two tables; the second has the pageblocks.
fn parse(text: &str) -> Result<Vec<Pageblocks>, &str> {
    let (mut types, mut out) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix(BLOCKS_HEADING) {
            types = head.split_whitespace().collect();
        } else if line.starts_with("Node ") && !types.is_empty() {
            out.push(row(line, &types).ok_or(line)?);
        } else {
            types.clear();
        }
    }
    if out.is_empty() { Err(text) } else { Ok(out) }
}

/// `Node 0, zone      DMA            1            7 ...`
fn row(line: &str, types: &[&str]) -> Option<Pageblocks> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone")?;
    let mut words = rest.split_whitespace();
    let zone = words.next()?.to_owned();
    let counts: Vec<u64> = words.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let by_type = types.iter().map(|&t| t.to_owned()).zip(counts.iter().copied()).collect();
    let whole = counts.len() == types.len();
    whole.then_some(Pageblocks { node: node.trim().parse().ok()?, zone, by_type })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_kernels() {
        let blocks = |text| {
            let zones = parse(text).unwrap();
            let movable = |z: &Pageblocks| z.by_type.iter().find(|t| t.0 == "Movable").unwrap().1;
            zones.iter().map(|z| (z.node, z.zone.clone(), movable(z))).collect::<Vec<_>>()
        };
        for text in [
            include_str!("../../tests/fixtures/pagetypeinfo/6.1"),
            include_str!("../../tests/fixtures/pagetypeinfo/7.2"),
        ] {
            let zones = blocks(text);
            let names: Vec<_> = zones.iter().map(|z| (z.0, z.1.as_str())).collect();
            assert_eq!(names, [(0, "DMA"), (0, "DMA32"), (1, "DMA32"), (2, "Normal")]);
            assert!(zones[1..].iter().all(|z| z.2 > 400), "{zones:?}");
        }
        assert!(parse("Page block order: 9\n").is_err());
        assert_eq!(parse("Number of blocks type A B\nNode 0, zone DMA 1\n").ok(), None);
    }
}
