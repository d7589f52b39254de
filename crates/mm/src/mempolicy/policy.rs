//! A policy: a mode with nodes, and the effect of changes of the allowed nodes.

use crate::nodes::NodeSet;

/// The mode of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// prefer the node of the allocating task
    Local,
    /// prefer one node
    Preferred,
    /// only these nodes, the nearest first
    Bind,
    /// the nodes in turn
    Interleave,
    /// the nodes in turn, by weights
    WeightedInterleave,
}

/// How the nodes of a policy follow changes of the allowed nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeMapping {
    /// each node is mapped to the new node in the same position
    #[default]
    Remapped,
    /// always these nodes, as far as they are allowed: `MPOL_F_STATIC_NODES`
    Static,
    /// positions among the allowed nodes: `MPOL_F_RELATIVE_NODES`
    Relative,
}

/// The reason why a policy is invalid; the kernel returns EINVAL for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// no node is named, or none of them is allowed
    #[error("none of the policy's nodes is allowed: name one that the cpuset has")]
    NoNodes,
    /// nodes are named for a mode without nodes
    #[error("a local policy has neither nodes nor flags for nodes: leave them out")]
    Nodes,
}

/// A policy as created by `set_mempolicy` and `mbind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    mode: Mode,
    basis: NodeMapping,
    nodes: NodeSet,
    /// the requested nodes; for [`NodeMapping::Remapped`] the nodes that were allowed at that time
    basis_nodes: NodeSet,
}

impl Policy {
    /// Creates a policy, as `mpol_new` and `mpol_set_nodemask` do, for a task with the nodes `allowed`, all
    /// of which have memory.
    ///
    /// # Errors
    /// If no node is left, or nodes are named for a mode without nodes.
    pub fn new(
        mode: Mode,
        basis: NodeMapping,
        nodes: NodeSet,
        allowed: NodeSet,
    ) -> Result<Self, PolicyError> {
        // A preferred policy without a node is a local policy.
        if mode == Mode::Local || mode == Mode::Preferred && nodes.is_empty() {
            let sound = nodes.is_empty() && basis == NodeMapping::Remapped;
            let local = Policy { mode: Mode::Local, basis, nodes, basis_nodes: nodes };
            return if sound { Ok(local) } else { Err(PolicyError::Nodes) };
        }
        let usable = match basis {
            NodeMapping::Relative => nodes.relative_to(allowed),
            NodeMapping::Remapped | NodeMapping::Static => nodes.and(allowed),
        };
        let first = usable.first().ok_or(PolicyError::NoNodes)?;
        let usable = if mode == Mode::Preferred { NodeSet::single(first) } else { usable };
        let basis_nodes = if basis == NodeMapping::Remapped { allowed } else { nodes };
        Ok(Policy { mode, basis, nodes: usable, basis_nodes })
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The present nodes of the policy; empty for a local policy.
    #[must_use]
    pub fn nodes(&self) -> NodeSet {
        self.nodes
    }

    /// Changes the allowed nodes: `mpol_rebind_policy`. If none of the policy's nodes remains allowed, it
    /// uses all allowed nodes. A preferred node stays unchanged, and allocations skip it.
    pub fn rebind(&mut self, allowed: NodeSet) {
        if matches!(self.mode, Mode::Local | Mode::Preferred) {
            return;
        }
        let nodes = match self.basis {
            NodeMapping::Static => self.basis_nodes.and(allowed),
            NodeMapping::Relative => self.basis_nodes.relative_to(allowed),
            NodeMapping::Remapped => {
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

    fn rebound(basis: NodeMapping, nodes: &[usize], allowed: &[usize], to: &[usize]) -> NodeSet {
        let mut policy =
            Policy::new(Mode::WeightedInterleave, basis, set(nodes), set(allowed)).unwrap();
        policy.rebind(set(to));
        policy.nodes()
    }

    #[test]
    fn valid_policies_are_accepted() {
        let make = |mode, nodes: &[usize]| {
            Policy::new(mode, NodeMapping::default(), set(nodes), set(&[0, 1])).map(|p| p.nodes())
        };
        assert_eq!(make(Mode::Bind, &[1, 5]), Ok(set(&[1])));
        assert_eq!(make(Mode::Preferred, &[0, 1]), Ok(set(&[0])));
        assert_eq!(make(Mode::Preferred, &[]), Ok(NodeSet::EMPTY), "local");
        assert_eq!(make(Mode::Interleave, &[]), Err(PolicyError::NoNodes));
        assert_eq!(make(Mode::WeightedInterleave, &[7]), Err(PolicyError::NoNodes));
        assert_eq!(make(Mode::Local, &[0]), Err(PolicyError::Nodes));
        let relative = Policy::new(Mode::Local, NodeMapping::Relative, NodeSet::EMPTY, set(&[0]));
        assert_eq!(relative, Err(PolicyError::Nodes));
    }

    #[test]
    fn a_rebind_maps_the_nodes() {
        assert_eq!(rebound(NodeMapping::Remapped, &[0, 1], &[0, 1, 2], &[4, 5, 6]), set(&[4, 5]));
        assert_eq!(rebound(NodeMapping::Static, &[0, 1], &[0, 1], &[1, 2]), set(&[1]));
        assert_eq!(
            rebound(NodeMapping::Static, &[0], &[0, 1], &[1, 2]),
            set(&[1, 2]),
            "all of them"
        );
        assert_eq!(rebound(NodeMapping::Relative, &[0, 2], &[0, 1, 2], &[3, 8, 9]), set(&[3, 9]));
    }

    #[test]
    fn encoding_and_decoding_give_the_same_values() {
        let nodes = set(&[0, 2]);
        let mut policy =
            Policy::new(Mode::Interleave, NodeMapping::Static, nodes, set(&[0, 1, 2])).unwrap();
        policy.rebind(set(&[1]));
        assert_eq!(policy.nodes(), set(&[1]));
        policy.rebind(set(&[0, 1, 2]));
        assert_eq!(policy.nodes(), nodes, "what was asked for is not forgotten");
    }
}
