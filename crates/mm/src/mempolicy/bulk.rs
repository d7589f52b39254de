//! The distribution of a bulk allocation over nodes: `alloc_pages_bulk_array_weighted_interleave` and
//! `alloc_pages_bulk_array_interleave` of mm/mempolicy.c.

use super::task::{Allowed, Task};

/// The pages to allocate from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// the node
    pub node: usize,
    /// number of pages
    pub pages: u64,
}

impl Task {
    /// Distributes pages by weight: first the rest of the current round, then whole rounds and a partial one,
    /// with one share per node. The task's state is then the same as after this number of single pages.
    ///
    /// Weights are read once, and used for the whole bulk.
    pub fn bulk_weighted(
        &mut self,
        pages: u64,
        weight: impl Fn(usize) -> u8,
        mut meanwhile: impl FnMut(&mut Allowed),
    ) -> Vec<Share> {
        let nodes = self.consistent(&mut meanwhile, |nodes, _| nodes);
        let weight = |node| u64::from(weight(node).max(1));
        let total: u64 = nodes.iter().map(weight).sum();
        if pages == 0 || total == 0 {
            return Vec::new();
        }
        let mut shares = Vec::new();
        let mut rest = pages;
        if self.left > 0 && nodes.contains(self.last) {
            let drained = rest.min(self.left.into());
            shares.push(Share { node: self.last, pages: drained });
            rest -= drained;
            self.left -= u8::try_from(drained).unwrap_or(self.left);
            if rest == 0 {
                return shares;
            }
        }
        let (rounds, mut partial) = (rest / total, rest % total);
        // After whole rounds, the task is before the node that they began with.
        let mut node = nodes.after(self.last).unwrap_or(self.last);
        let mut resume = (node, weight(node));
        for _ in 0..nodes.len() {
            let mut share = weight(node) * rounds;
            if partial > weight(node) {
                share += weight(node);
                partial -= weight(node);
            } else if partial > 0 {
                share += partial;
                resume = (node, weight(node) - partial);
                partial = 0;
            }
            if share == 0 {
                break;
            }
            shares.push(Share { node, pages: share });
            node = nodes.after(node).unwrap_or(node);
        }
        self.last = resume.0;
        self.left = u8::try_from(resume.1).unwrap_or(u8::MAX);
        shares
    }

    /// Distributes pages evenly: each node gets the same number, and the first ones get one more.
    pub fn bulk_interleaved(
        &mut self,
        pages: u64,
        mut meanwhile: impl FnMut(&mut Allowed),
    ) -> Vec<Share> {
        let count = self.consistent(&mut meanwhile, |nodes, _| nodes.len()) as u64;
        let share = |i: u64| pages / count + u64::from(i < pages % count);
        let turns = (0..count).filter_map(|i| {
            let node = self.take_interleaved(&mut meanwhile)?;
            Some(Share { node, pages: share(i) })
        });
        turns.filter(|s| s.pages > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Basis, Mode, Policy};
    use super::*;
    use crate::nodes::NodeSet;

    fn task(nodes: NodeSet) -> Task {
        let policy =
            Policy::new(Mode::WeightedInterleave, Basis::Static, nodes, NodeSet::ALL).unwrap();
        Task::new(policy, NodeSet::ALL)
    }

    fn pairs(shares: &[Share]) -> Vec<(usize, u64)> {
        shares.iter().map(|s| (s.node, s.pages)).collect()
    }

    #[test]
    fn rounds_and_a_part_of_one() {
        let mut t = task([0, 1, 2].into_iter().collect());
        let weight = |n: usize| [5, 2, 1][n];
        assert_eq!(pairs(&t.bulk_weighted(22, weight, |_| ())), [(0, 15), (1, 5), (2, 2)]);
        assert_eq!((t.last, t.left), (1, 1), "the second of node 1 is next");
        assert_eq!(pairs(&t.bulk_weighted(1, weight, |_| ())), [(1, 1)]);
        assert_eq!(pairs(&t.bulk_weighted(3, weight, |_| ())), [(2, 1), (0, 2)]);
        assert_eq!((t.last, t.left), (0, 3));
        assert_eq!(pairs(&t.bulk_weighted(0, weight, |_| ())), []);
    }

    #[test]
    fn plainly() {
        let mut t = task([0, 3].into_iter().collect());
        assert_eq!(pairs(&t.bulk_interleaved(5, |_| ())), [(0, 3), (3, 2)]);
        assert_eq!(pairs(&t.bulk_interleaved(1, |_| ())), [(0, 1)]);
        // Single pages behave differently: there, a node without a page has had its turn.
        assert_eq!(pairs(&t.bulk_interleaved(1, |_| ())), [(0, 1)]);
    }
}
