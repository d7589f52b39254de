//! Nodes with weights, and the node of a page by its index: `weighted_interleave_nid` of mm/mempolicy.c.

use std::ops::Range;

/// Maximum number of nodes, as in the kernel.
pub const MAX_WEIGHTS: usize = 1024;

/// The reason why nodes with weights are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeWeightsError {
    /// no node
    #[error("no node is named: name at least one")]
    Empty,
    /// too many nodes
    #[error("{0} nodes are named: name at most {MAX_WEIGHTS}")]
    TooMany(usize),
    /// a weight of zero
    #[error("node {0} has the weight 0: choose 1 to 255, or leave the node out")]
    Zero(u32),
    /// a repeated node
    #[error("node {0} is named twice: name it once")]
    Twice(u32),
}

/// Nodes with their weights: one round of interleaving.
///
/// ```
/// use isotherm_mm::mempolicy::NodeWeights;
///
/// let weights = NodeWeights::new([(0, 5), (1, 1)])?;
/// let round: Vec<u32> = (0..6).map(|page| weights.node(page)).collect();
/// assert_eq!(round, [0, 0, 0, 0, 0, 1]);
/// assert_eq!(weights.counts(0..65_537), [(0, 54_615), (1, 10_922)]);
/// # Ok::<(), isotherm_mm::mempolicy::NodeWeightsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeWeights {
    nodes: Vec<(u32, u8)>,
    /// end of each node's part of the round, in pages
    ends: Vec<u64>,
}

impl NodeWeights {
    /// Creates a round from nodes and weights in any order.
    ///
    /// # Errors
    /// If there is no node, a repeated node, a weight of 0, or more than [`MAX_WEIGHTS`] nodes.
    pub fn new(nodes: impl IntoIterator<Item = (u32, u8)>) -> Result<Self, NodeWeightsError> {
        let mut nodes: Vec<(u32, u8)> = nodes.into_iter().take(MAX_WEIGHTS + 1).collect();
        nodes.sort_unstable();
        if nodes.is_empty() {
            return Err(NodeWeightsError::Empty);
        }
        if nodes.len() > MAX_WEIGHTS {
            return Err(NodeWeightsError::TooMany(nodes.len()));
        }
        if let Some(zero) = nodes.iter().find(|n| n.1 == 0) {
            return Err(NodeWeightsError::Zero(zero.0));
        }
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(NodeWeightsError::Twice(pair[0].0));
        }
        let sums = nodes.iter().scan(0, |sum, n| {
            *sum += u64::from(n.1);
            Some(*sum)
        });
        let ends = sums.collect();
        Ok(NodeWeights { nodes, ends })
    }

    /// Nodes and weights, in ascending order of node.
    #[must_use]
    pub fn nodes(&self) -> &[(u32, u8)] {
        &self.nodes
    }

    /// Number of pages in a round.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ends[self.ends.len() - 1]
    }

    /// The node of the page (or folio) with this index: see [`interleave_index`].
    #[must_use]
    pub fn node(&self, index: u64) -> u32 {
        self.run(index).0
    }

    /// The node of the page with this index, and the number of consecutive pages from this index on that are
    /// on this node.
    #[must_use]
    pub fn run(&self, index: u64) -> (u32, u64) {
        if let [(node, _)] = self.nodes[..] {
            return (node, u64::MAX - index);
        }
        let place = index % self.total();
        let at = self.ends.partition_point(|&end| end <= place);
        (self.nodes[at].0, self.ends[at] - place)
    }

    /// The number of pages with these indices on each node, in ascending order of node.
    #[must_use]
    pub fn counts(&self, indices: Range<u64>) -> Vec<(u32, u64)> {
        let count = |(&(node, weight), &end): (&(u32, u8), &u64)| {
            let place = end - u64::from(weight)..end;
            let below = |n| self.below(n, &place);
            (node, below(indices.end).saturating_sub(below(indices.start)))
        };
        self.nodes.iter().zip(&self.ends).map(count).collect()
    }

    /// The number of indices below `n` whose position in the round is within `place`.
    fn below(&self, n: u64, place: &Range<u64>) -> u64 {
        let partly = (n % self.total()).clamp(place.start, place.end) - place.start;
        n / self.total() * (place.end - place.start) + partly
    }
}

/// The node of the page with this index, among nodes with weights in ascending order of node. A weight of 0
/// counts as 1, the default. `None` if there is no node.
///
/// For many pages, use [`NodeWeights::node`].
#[must_use]
pub fn static_node(index: u64, nodes: &[(u32, u8)]) -> Option<u32> {
    let weight = |n: &(u32, u8)| u64::from(n.1.max(1));
    let total: u64 = nodes.iter().map(weight).sum();
    let mut left = index.checked_rem(total)?;
    for n in nodes {
        if left < weight(n) {
            return Some(n.0);
        }
        left -= weight(n);
    }
    None
}

/// The interleave index of a page, or of a folio of 2^`order` pages: `get_vma_policy`.
///
/// `pgoff` is the offset of the mapping in pages, and `page` is the offset of the page within the mapping. The
/// offset of an anonymous mapping is its address in pages, unless mremap has moved it with resident memory.
/// Therefore, for 4 KiB pages, the index is the number of the virtual page. For shared memory, the inode number is
/// added.
#[must_use]
pub fn interleave_index(pgoff: u64, page: u64, order: u32) -> u64 {
    let folios = |pages: u64| pages.checked_shr(order).unwrap_or(0);
    folios(pgoff).wrapping_add(folios(page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights() -> impl Strategy<Value = NodeWeights> {
        proptest::collection::btree_map(0_u32..1024, 1_u8..=255, 1..9)
            .prop_map(|nodes| NodeWeights::new(nodes).unwrap())
    }

    #[test]
    fn invalid_weights_are_refused() {
        let new = |nodes: &[(u32, u8)]| NodeWeights::new(nodes.iter().copied());
        assert_eq!(new(&[]), Err(NodeWeightsError::Empty));
        assert_eq!(new(&[(1, 0), (0, 1)]), Err(NodeWeightsError::Zero(1)));
        assert_eq!(new(&[(1, 3), (0, 1), (1, 2)]), Err(NodeWeightsError::Twice(1)));
        let many: Vec<(u32, u8)> = (0..2000).map(|n| (n, 1)).collect();
        assert_eq!(new(&many), Err(NodeWeightsError::TooMany(MAX_WEIGHTS + 1)));
        assert_eq!(new(&[(2, 1), (0, 5)]).unwrap().nodes(), [(0, 5), (2, 1)]);
        assert_eq!(static_node(3, &[]), None);
        assert_eq!(static_node(3, &[(0, 0), (4, 0)]), Some(4), "0 is the default: 1");
    }

    /// numa_maps from the seed, a mail that isotherm is built on: the start of a mapping, its weights, and
    /// the pages found on each node.
    ///
    /// For the sixth row the rule gives 10922 and 54615, one page off: that page was not placed by the
    /// policy.
    #[test]
    fn counts_of_the_seed() {
        let rows = [
            (0x0176_a000, [1, 1], 65_793, [32_897, 32_896]),
            (0x7fce_eb9f_f000, [1, 1], 65_537, [32_768, 32_769]),
            (0x01b1_4000, [5, 1], 65_793, [54_828, 10_965]),
            (0x7f47_a1df_f000, [5, 1], 65_537, [54_614, 10_923]),
            (0x01f0_7000, [1, 5], 65_793, [10_966, 54_827]),
            (0x7f17_b1df_f000, [1, 5], 65_537, [10_922, 54_615]),
        ];
        for (start, [w0, w1], pages, [n0, n1]) in rows {
            let first = start >> 12;
            let weights = NodeWeights::new([(0, w0), (1, w1)]).unwrap();
            let counts = weights.counts(first..first + pages);
            assert_eq!(counts, [(0, n0), (1, n1)], "{start:x} {w0}:{w1}");
        }
    }

    #[test]
    fn folios_count_as_one() {
        assert_eq!(interleave_index(0x7f00, 5, 0), 0x7f05);
        assert_eq!(interleave_index(512, 1024, 9), 3);
        assert_eq!(interleave_index(512, 1023, 9), 2);
        assert_eq!(interleave_index(1, 1, 64), 0);
    }

    proptest! {
        #[test]
        fn both_ways_agree(weights in weights(), index in any::<u64>()) {
            prop_assert_eq!(static_node(index, weights.nodes()), Some(weights.node(index)));
        }

        #[test]
        fn counts_are_those_of_single_pages(
            weights in weights(), from in 0..u64::MAX / 2, n in 0_u64..3000,
        ) {
            let counts = weights.counts(from..from + n);
            for (node, count) in counts {
                let single = (from..from + n).filter(|&i| weights.node(i) == node).count();
                prop_assert_eq!(count, single as u64);
            }
        }

        #[test]
        fn runs_are_those_of_single_pages(weights in weights(), from in 0..u64::MAX / 2) {
            let (node, pages) = weights.run(from);
            prop_assert!((from..from + pages.min(300)).all(|i| weights.node(i) == node));
            if weights.nodes().len() > 1 {
                prop_assert_ne!(weights.node(from + pages), node);
            }
        }

        /// In any range, the share of each node has an error below its weight; in whole rounds it is exact.
        #[test]
        fn shares(weights in weights(), from in 0..u64::MAX / 2, n in 0_u64..1 << 40) {
            let counts = weights.counts(from..from + n);
            prop_assert_eq!(counts.iter().map(|c| c.1).sum::<u64>(), n);
            for (&(_, count), &(_, weight)) in counts.iter().zip(weights.nodes()) {
                let share = n as f64 * f64::from(weight) / weights.total() as f64;
                prop_assert!((count as f64 - share).abs() <= f64::from(weight));
                if n % weights.total() == 0 {
                    prop_assert_eq!(count, n / weights.total() * u64::from(weight));
                }
            }
        }
    }
}
