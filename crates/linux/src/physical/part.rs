//! A selection of physical memory.

use isotherm_core::{AddrRange, PAGE_SIZE};

use super::{PhysicalError, RamRange};

/// A part of physical memory. All memory if neither nodes nor ranges are given; if both are, their
/// intersection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhysicalSelection {
    /// only memory of these nodes
    pub nodes: Vec<u32>,
    /// only memory in these ranges, which are extended to whole pages
    pub ranges: Vec<AddrRange>,
}

impl PhysicalSelection {
    /// The selected part of `memory`.
    ///
    /// # Errors
    /// If a node or a range has no memory, or if nothing remains.
    pub fn of(&self, memory: &[RamRange]) -> Result<Vec<RamRange>, PhysicalError> {
        for &node in &self.nodes {
            if !memory.iter().any(|s| s.node == node) {
                let mut have: Vec<u32> = memory.iter().map(|s| s.node).collect();
                have.sort_unstable();
                have.dedup();
                return Err(PhysicalError::NoNode { node, have });
            }
        }
        let ranges = self.ranges.iter().map(pages);
        for range in ranges.clone() {
            if !memory.iter().any(|s| s.range.intersect(&range).is_some()) {
                return Err(PhysicalError::NoRam(range));
            }
        }
        let ranges = if self.ranges.is_empty() {
            vec![AddrRange::new(0, u64::MAX)]
        } else {
            joined_pages(&self.ranges)
        };
        let of_nodes =
            memory.iter().filter(|s| self.nodes.is_empty() || self.nodes.contains(&s.node));
        let within = |s: &RamRange, range: &AddrRange| {
            Some(RamRange { range: s.range.intersect(range)?, ..s.clone() })
        };
        let chosen: Vec<RamRange> = of_nodes
            .flat_map(|s| ranges.iter().filter_map(move |range| within(s, range)))
            .collect();
        if chosen.is_empty() { Err(PhysicalError::Apart) } else { Ok(chosen) }
    }
}

/// The pages that overlap `range`.
fn pages(range: &AddrRange) -> AddrRange {
    let end = range.end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX);
    AddrRange::new(range.start - range.start % PAGE_SIZE, end)
}

/// The pages that overlap any of `ranges`, sorted and disjoint.
pub(crate) fn joined_pages(ranges: &[AddrRange]) -> Vec<AddrRange> {
    joined(ranges.iter().map(pages).collect())
}

/// The union of `ranges`, sorted and disjoint.
fn joined(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.sort();
    let mut out: Vec<AddrRange> = Vec::new();
    for r in ranges {
        match out.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => out.push(r),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Vec<RamRange> {
        let stretch = |start, end, node| RamRange {
            range: AddrRange::new(start, end),
            node,
            zone: "Normal".into(),
        };
        vec![stretch(0x1000, 0x9000, 0), stretch(0x9000, 0x20000, 1), stretch(0x30000, 0x40000, 0)]
    }

    fn chosen(nodes: &[u32], ranges: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, String> {
        let ranges = ranges.iter().map(|&(start, end)| AddrRange { start, end }).collect();
        let part = PhysicalSelection { nodes: nodes.to_vec(), ranges };
        let chosen = part.of(&memory()).map_err(|e| e.to_string())?;
        Ok(chosen.iter().map(|s| (s.range.start, s.range.end)).collect())
    }

    #[test]
    fn parts() {
        let all = [(0x1000, 0x9000), (0x9000, 0x20000), (0x30000, 0x40000)];
        assert_eq!(chosen(&[], &[]).unwrap(), all);
        assert_eq!(chosen(&[1], &[]).unwrap(), all[1..2]);
        assert_eq!(chosen(&[0, 1], &[]).unwrap(), all);
        let two = [(0x33000, 0x35000), (0x8001, 0xa001), (0x34000, 0x36000)];
        let want = [(0x8000, 0x9000), (0x9000, 0xb000), (0x33000, 0x36000)];
        assert_eq!(chosen(&[], &two).unwrap(), want);
        assert_eq!(chosen(&[0], &two).unwrap(), [want[0], want[2]]);
    }

    #[test]
    fn missing_nodes_and_ranges_are_refused() {
        assert!(chosen(&[2], &[]).unwrap_err().contains("node 2: nodes with memory are 0, 1"));
        assert!(chosen(&[], &[(0x20000, 0x30000)]).unwrap_err().contains("0x20000..0x30000"));
        assert!(chosen(&[], &[(0x5000, 0x5000)]).unwrap_err().contains("no System RAM"));
        assert!(chosen(&[], &[(0x6000, 0x5000)]).unwrap_err().contains("no System RAM"));
        assert!(chosen(&[1], &[(0x30000, 0x40000)]).unwrap_err().contains("chosen nodes"));
    }
}
