//! The position of a task in its round: `interleave_nodes` and `weighted_interleave_nodes` of mm/mempolicy.c.

use super::policy::Policy;
use crate::layout::MAX_NODES;
use crate::nodes::NodeSet;

/// The policy and the allowed nodes of a task, which others may change during an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    policy: Policy,
    nodes: NodeSet,
    /// incremented by each change: `mems_allowed_seq`
    sequence: u64,
}

impl Allowed {
    /// The present policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The nodes that a page may come from at present.
    #[must_use]
    pub fn nodes(&self) -> NodeSet {
        self.nodes
    }

    /// Changes the nodes of the cpuset, as `cpuset_change_task_nodemask` does. An empty set is ignored.
    pub fn rebind(&mut self, nodes: NodeSet) {
        if !nodes.is_empty() {
            self.policy.rebind(nodes);
            self.nodes = nodes;
            self.sequence += 1;
        }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// A task with a memory policy.
///
/// Functions during which the allowed nodes may change have a parameter `meanwhile`: it is called at each
/// point where a change may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    allowed: Allowed,
    /// node of the last page: `il_prev`
    last: usize,
    /// pages that this node must still provide: `il_weight`
    left: u8,
}

impl Task {
    /// A task that has just set its policy, so that the first page comes from the lowest node.
    #[must_use]
    pub fn new(policy: Policy, allowed: NodeSet) -> Self {
        let allowed = Allowed { policy, nodes: allowed, sequence: 0 };
        Task { allowed, last: MAX_NODES - 1, left: 0 }
    }

    /// The present policy and allowed nodes.
    #[must_use]
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    /// Mutable access, to change them.
    pub fn allowed_mut(&mut self) -> &mut Allowed {
        &mut self.allowed
    }

    /// The result of `get_mempolicy` with `MPOL_F_NODE`: the node of the next page.
    #[must_use]
    pub fn next(&self, weighted: bool) -> Option<usize> {
        let nodes = self.allowed.policy.nodes();
        let stays = weighted && self.left > 0 && nodes.contains(self.last);
        if stays { Some(self.last) } else { nodes.after(self.last) }
    }

    /// Interleave without weights: the next node. `None` if there is no node.
    pub fn take_interleaved(&mut self, mut meanwhile: impl FnMut(&mut Allowed)) -> Option<usize> {
        let node = self.consistent(&mut meanwhile, |nodes, last| nodes.after(last))?;
        self.last = node;
        Some(node)
    }

    /// Weighted interleave: the same node until it has provided as many pages as its weight, then the next
    /// node, whose weight is read then. `None` if there is no node.
    pub fn take_weighted(
        &mut self,
        weight: impl Fn(usize) -> u8,
        mut meanwhile: impl FnMut(&mut Allowed),
    ) -> Option<usize> {
        // After a change of the nodes, the remaining pages of the turn may become usable again.
        while self.left == 0 || !self.allowed.policy.nodes().contains(self.last) {
            let before = self.allowed.sequence;
            let next = self.allowed.policy.nodes().after(self.last);
            meanwhile(&mut self.allowed);
            if self.allowed.sequence == before {
                // Nothing may be stored before this point: it would be counted twice.
                self.last = next?;
                self.left = weight(self.last).max(1);
            }
        }
        self.left -= 1;
        Some(self.last)
    }

    /// Computes a value from the policy's nodes and the last node; repeats this if they have changed in the
    /// meantime.
    fn consistent<T>(
        &mut self,
        meanwhile: &mut impl FnMut(&mut Allowed),
        read: impl Fn(NodeSet, usize) -> T,
    ) -> T {
        loop {
            let before = self.allowed.sequence;
            let found = read(self.allowed.policy.nodes(), self.last);
            meanwhile(&mut self.allowed);
            if self.allowed.sequence == before {
                return found;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Mode, NodeMapping};
    use super::*;

    fn task(nodes: &[usize], allowed: NodeSet) -> Task {
        let nodes = nodes.iter().copied().collect();
        let policy =
            Policy::new(Mode::WeightedInterleave, NodeMapping::Static, nodes, allowed).unwrap();
        Task::new(policy, allowed)
    }

    #[test]
    fn rounds() {
        let mut t = task(&[0, 1], NodeSet::ALL);
        let weights = [3, 1];
        let round: Vec<_> =
            (0..6).filter_map(|_| t.take_weighted(|n| weights[n], |_| ())).collect();
        assert_eq!(round, [0, 0, 0, 1, 0, 0]);
        assert_eq!((t.next(true), t.next(false)), (Some(0), Some(1)));
        let plain: Vec<_> = (0..3).filter_map(|_| t.take_interleaved(|_| ())).collect();
        assert_eq!(plain, [1, 0, 1], "it goes on from the last node");
    }

    #[test]
    fn a_new_weight_is_for_the_next_round() {
        let mut t = task(&[0, 1], NodeSet::ALL);
        assert_eq!(t.take_weighted(|_| 2, |_| ()), Some(0));
        let after: Vec<_> = (0..3).filter_map(|_| t.take_weighted(|_| 1, |_| ())).collect();
        assert_eq!(after, [0, 1, 0], "the second page of the round that had begun");
    }

    #[test]
    fn a_change_on_the_way_is_read_again() {
        let mut t = task(&[0, 1, 2], NodeSet::ALL);
        let mut left = 3;
        let node = t.take_weighted(
            |_| 4,
            |allowed| {
                if left > 0 {
                    left -= 1;
                    allowed.rebind([1, left].into_iter().collect());
                }
            },
        );
        assert_eq!(left, 0, "tried again each time");
        assert_eq!(node, Some(0), "of the last nodes, 0 and 1");
        assert_eq!((t.last, t.left), (0, 3));
    }

    #[test]
    fn a_node_that_comes_back_on_the_way_goes_on_with_its_turn() {
        let mut t = task(&[0, 1], NodeSet::ALL);
        assert_eq!(t.take_weighted(|_| 4, |_| ()), Some(0));
        t.allowed_mut().rebind(NodeSet::single(1));
        let mut back = Some([0, 1].into_iter().collect());
        let again = |allowed: &mut Allowed| {
            back.take().into_iter().for_each(|nodes| allowed.rebind(nodes));
        };
        assert_eq!(t.take_weighted(|_| 4, again), Some(0));
        assert_eq!((t.last, t.left), (0, 2));
    }

    #[test]
    fn a_node_that_is_lost_gives_no_more() {
        let mut t = task(&[0, 1], NodeSet::ALL);
        assert_eq!(t.take_weighted(|_| 5, |_| ()), Some(0));
        t.allowed_mut().rebind(NodeSet::single(1));
        assert_eq!(t.take_weighted(|_| 5, |_| ()), Some(1));
        t.allowed_mut().rebind(NodeSet::EMPTY);
        assert_eq!(t.allowed().nodes(), NodeSet::single(1), "a cpuset without nodes cannot be");
    }
}
