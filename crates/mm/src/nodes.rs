//! Sets of nodes: the kernel's `nodemask_t`.

use crate::layout::MAX_NODES;

/// A set of nodes below [`MAX_NODES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeSet(u64);

impl NodeSet {
    /// The empty set.
    pub const EMPTY: NodeSet = NodeSet(0);
    /// The set of all possible nodes.
    pub const ALL: NodeSet = NodeSet(u64::MAX);

    /// The set with only this node.
    #[must_use]
    pub fn single(node: usize) -> Self {
        [node].into_iter().collect()
    }

    /// Whether the set contains a node.
    #[must_use]
    pub fn contains(self, node: usize) -> bool {
        node < MAX_NODES && self.0 >> node & 1 == 1
    }

    /// Number of nodes in the set.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest node of the set.
    #[must_use]
    pub fn first(self) -> Option<usize> {
        self.iter().next()
    }

    /// The next higher node of the set after `node`, which need not be in the set; after the last node, the
    /// first one. Like `next_node_in`.
    #[must_use]
    pub fn after(self, node: usize) -> Option<usize> {
        self.iter().find(|&n| n > node).or_else(|| self.first())
    }

    /// The nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_NODES).filter(move |&n| self.contains(n))
    }

    /// Intersection of both sets.
    #[must_use]
    pub fn and(self, other: NodeSet) -> Self {
        NodeSet(self.0 & other.0)
    }

    /// Number of nodes of the set below a node.
    fn place(self, node: usize) -> usize {
        self.iter().take_while(|&n| n < node).count()
    }

    /// Maps each node to the node of `new` with the same position as the node has in `old`. Nodes that are
    /// not in `old` stay unchanged. Like `nodes_remap`.
    #[must_use]
    pub fn remap(self, old: NodeSet, new: NodeSet) -> Self {
        let to = |node: usize| {
            let place = old.place(node).checked_rem(new.len())?;
            new.iter().nth(place)
        };
        let moved = |node| if old.contains(node) { to(node).unwrap_or(node) } else { node };
        self.iter().map(moved).collect()
    }

    /// Interprets the numbers in this set as positions in `within`; positions beyond its end wrap around.
    /// Like `mpol_relative_nodemask`.
    #[must_use]
    pub fn relative_to(self, within: NodeSet) -> Self {
        let at = |place: usize| within.iter().nth(place.checked_rem(within.len())?);
        self.iter().filter_map(at).collect()
    }
}

impl FromIterator<usize> for NodeSet {
    /// Numbers of [`MAX_NODES`] and above are ignored.
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let bits = nodes.into_iter().filter(|&n| n < MAX_NODES).map(|n| 1 << n);
        NodeSet(bits.fold(0, |all, bit: u64| all | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[usize]) -> NodeSet {
        nodes.iter().copied().collect()
    }

    #[test]
    fn round_and_round() {
        let nodes = set(&[1, 4, 63]);
        assert_eq!(nodes.first(), Some(1));
        assert_eq!([1, 2, 4, 63, 0].map(|n| nodes.after(n)), [4, 4, 63, 1, 1].map(Some));
        assert_eq!(NodeSet::EMPTY.after(3), None);
        assert_eq!(set(&[5]).after(5), Some(5));
        assert_eq!(set(&[64, 65]), NodeSet::EMPTY);
        assert_eq!(NodeSet::ALL.len(), MAX_NODES);
    }

    #[test]
    fn by_place() {
        // The nodes 0 and 2 are the first and third of 0..3; in 4 and 6 both positions map to 4.
        assert_eq!(set(&[0, 2]).remap(set(&[0, 1, 2]), set(&[4, 6])), set(&[4]));
        assert_eq!(set(&[0, 1]).remap(set(&[0, 1, 2]), set(&[4, 6])), set(&[4, 6]));
        assert_eq!(set(&[3]).remap(set(&[0, 1]), set(&[4])), set(&[3]), "not of the old ones");
        assert_eq!(set(&[3]).remap(set(&[3]), NodeSet::EMPTY), set(&[3]));
        assert_eq!(set(&[0, 1, 5]).relative_to(set(&[2, 7, 9])), set(&[2, 7, 9]));
        assert_eq!(set(&[0, 3]).relative_to(set(&[2, 7, 9])), set(&[2]));
        assert_eq!(set(&[0]).relative_to(NodeSet::EMPTY), NodeSet::EMPTY);
    }
}
