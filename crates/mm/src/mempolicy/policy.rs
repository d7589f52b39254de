//! A policy: a mode and its nodes, and what becomes of them when the allowed ones change.

use crate::nodes::NodeSet;

/// What a policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// the node of who allocates, first
    Local,
    /// one node first
    Preferred,
    /// these nodes alone, the nearest first
    Bind,
    /// one node after the other
    Interleave,
    /// the same, by weights
    WeightedInterleave,
}

/// What the nodes of a policy mean when the allowed ones change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Basis {
    /// each becomes the new one in its place
    #[default]
    Remapped,
    /// just these, as far as they are allowed: `MPOL_F_STATIC_NODES`
    Static,
    /// places among the allowed ones: `MPOL_F_RELATIVE_NODES`
    Relative,
}

/// Why there can be no such policy; EINVAL, all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// none of the nodes is allowed, or none was named
    #[error("none of the policy's nodes is allowed: name one that the cpuset has")]
    NoNodes,
    /// nodes where none belong
    #[error("a local policy has no nodes, and nothing that they mean: leave them out")]
    Nodes,
}

/// A policy as `set_mempolicy` and `mbind` make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    mode: Mode,
    basis: Basis,
    nodes: NodeSet,
    /// what was asked for; of [`Basis::Remapped`] what was allowed then
    basis_nodes: NodeSet,
}

impl Policy {
    /// Like `mpol_new` and `mpol_set_nodemask`, for a task that may use `allowed`, all with memory.
    ///
    /// # Errors
    /// If no node is left, or some are named where none belong.
    pub fn new(
        mode: Mode,
        basis: Basis,
        nodes: NodeSet,
        allowed: NodeSet,
    ) -> Result<Self, PolicyError> {
        // A preferred node that is not named is the local one.
        if mode == Mode::Local || mode == Mode::Preferred && nodes.is_empty() {
            let sound = nodes.is_empty() && basis == Basis::Remapped;
            let local = Policy { mode: Mode::Local, basis, nodes, basis_nodes: nodes };
            return if sound { Ok(local) } else { Err(PolicyError::Nodes) };
        }
        let usable = match basis {
            Basis::Relative => nodes.relative_to(allowed),
            Basis::Remapped | Basis::Static => nodes.and(allowed),
        };
        let first = usable.first().ok_or(PolicyError::NoNodes)?;
        let usable = if mode == Mode::Preferred { NodeSet::single(first) } else { usable };
        let basis_nodes = if basis == Basis::Remapped { allowed } else { nodes };
        Ok(Policy { mode, basis, nodes: usable, basis_nodes })
    }

    /// What it does.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The nodes that it is about now; none if it is local.
    #[must_use]
    pub fn nodes(&self) -> NodeSet {
        self.nodes
    }

    /// The allowed nodes change: `mpol_rebind_policy`. If none of its nodes is allowed any more, it
    /// is about all that are. A preferred node stays, and is passed over.
    pub fn rebind(&mut self, allowed: NodeSet) {
        if matches!(self.mode, Mode::Local | Mode::Preferred) {
            return;
        }
        let nodes = match self.basis {
            Basis::Static => self.basis_nodes.and(allowed),
            Basis::Relative => self.basis_nodes.relative_to(allowed),
            Basis::Remapped => {
                let old = std::mem::replace(&mut self.basis_nodes, allowed);
                self.nodes.remap(old, allowed)
            }
        };
        self.nodes = if nodes.is_empty() { allowed } else { nodes };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[usize]) -> NodeSet {
        nodes.iter().copied().collect()
    }

    fn rebound(basis: Basis, nodes: &[usize], allowed: &[usize], to: &[usize]) -> NodeSet {
        let mut policy =
            Policy::new(Mode::WeightedInterleave, basis, set(nodes), set(allowed)).unwrap();
        policy.rebind(set(to));
        policy.nodes()
    }

    #[test]
    fn what_can_be_made() {
        let make = |mode, nodes: &[usize]| {
            Policy::new(mode, Basis::default(), set(nodes), set(&[0, 1])).map(|p| p.nodes())
        };
        assert_eq!(make(Mode::Bind, &[1, 5]), Ok(set(&[1])));
        assert_eq!(make(Mode::Preferred, &[0, 1]), Ok(set(&[0])));
        assert_eq!(make(Mode::Preferred, &[]), Ok(NodeSet::EMPTY), "local");
        assert_eq!(make(Mode::Interleave, &[]), Err(PolicyError::NoNodes));
        assert_eq!(make(Mode::WeightedInterleave, &[7]), Err(PolicyError::NoNodes));
        assert_eq!(make(Mode::Local, &[0]), Err(PolicyError::Nodes));
        let relative = Policy::new(Mode::Local, Basis::Relative, NodeSet::EMPTY, set(&[0]));
        assert_eq!(relative, Err(PolicyError::Nodes));
    }

    #[test]
    fn what_a_rebind_makes_of_it() {
        assert_eq!(rebound(Basis::Remapped, &[0, 1], &[0, 1, 2], &[4, 5, 6]), set(&[4, 5]));
        assert_eq!(rebound(Basis::Static, &[0, 1], &[0, 1], &[1, 2]), set(&[1]));
        assert_eq!(rebound(Basis::Static, &[0], &[0, 1], &[1, 2]), set(&[1, 2]), "all of them");
        assert_eq!(rebound(Basis::Relative, &[0, 2], &[0, 1, 2], &[3, 8, 9]), set(&[3, 9]));
    }

    #[test]
    fn there_and_back() {
        let nodes = set(&[0, 2]);
        let mut policy =
            Policy::new(Mode::Interleave, Basis::Static, nodes, set(&[0, 1, 2])).unwrap();
        policy.rebind(set(&[1]));
        assert_eq!(policy.nodes(), set(&[1]));
        policy.rebind(set(&[0, 1, 2]));
        assert_eq!(policy.nodes(), nodes, "what was asked for is not forgotten");
    }
}
