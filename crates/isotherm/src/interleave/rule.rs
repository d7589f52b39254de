//! The nodes, their weights, and the rule that gives the node of each page.

use std::collections::BTreeMap;

use isotherm_core::{Mapping, MappingKind, is_shared_memory};
use isotherm_linux::numa::{Node, NumaError, WeightFiles, WeightSetting, nodes};
use isotherm_mm::mempolicy::{NodeWeights, bandwidth_of, weights_from_bandwidth};

use super::{ChosenLayout, InterleaveError, root};
use crate::usage::UsageError;

/// The nodes and weights of this machine.
pub struct MachineNodes {
    /// nodes with memory
    pub nodes: Vec<Node>,
    /// `None` if the kernel has no weighted interleaving
    pub weights: Option<WeightSetting>,
}

/// The source of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightsSource {
    /// the options
    Given,
    /// the weights that are set on the machine
    Machine,
    /// the bandwidth that firmware reports
    Bandwidth,
}

impl WeightsSource {
    /// The source as text.
    pub fn text(self) -> &'static str {
        match self {
            WeightsSource::Given => "as given",
            WeightsSource::Machine => "those of the machine",
            WeightsSource::Bandwidth => "by the bandwidth that firmware reports",
        }
    }
}

impl MachineNodes {
    /// Reads the nodes and weights.
    pub fn read() -> Result<Self, NumaError> {
        let weights = match WeightFiles::find(root()) {
            Ok(files) => Some(files.read()?),
            Err(NumaError::NoWeights) => None,
            Err(e) => return Err(e),
        };
        Ok(MachineNodes { nodes: nodes(root())?, weights })
    }

    fn have(&self) -> Vec<u32> {
        self.nodes.iter().map(|n| n.node).collect()
    }

    /// Checks that these nodes have memory. Before Linux 6.16, the kernel has weights for nodes without memory
    /// too.
    pub fn check_nodes<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a u32>,
    ) -> Result<(), NumaError> {
        let have = self.have();
        match nodes.into_iter().find(|n| !have.contains(n)) {
            Some(&node) => Err(NumaError::NoNode { node, have }),
            None => Ok(()),
        }
    }

    /// The weights computed from firmware's bandwidths; `None` if firmware reports none.
    pub fn by_bandwidth(&self) -> Option<BTreeMap<u32, u8>> {
        let mb_s: Vec<u32> = self
            .nodes
            .iter()
            .map(|n| {
                let (read, write) = n.bandwidth();
                bandwidth_of(read, write)
            })
            .collect();
        let has_bandwidth = mb_s.iter().any(|&b| b > 0);
        has_bandwidth.then(|| self.have().into_iter().zip(weights_from_bandwidth(&mb_s)).collect())
    }

    /// The weights that `o` asks for, on nodes that exist and that process `pid` may use.
    pub fn rule(
        &self,
        o: &ChosenLayout,
        allowed: &[u32],
        pid: i32,
    ) -> Result<(NodeWeights, WeightsSource), InterleaveError> {
        let have = self.have();
        if o.nodes.is_empty() && have.len() < 2 {
            return Err(InterleaveError::OneNode);
        }
        let given = !o.nodes.is_empty();
        let all = || have.iter().copied().filter(|n| allowed.contains(n)).collect();
        let nodes: Vec<u32> = if given { o.nodes.clone() } else { all() };
        self.check_nodes(&nodes)?;
        for &node in &nodes {
            if !allowed.contains(&node) {
                return Err(NumaError::NotAllowed { pid, node, allowed: allowed.to_vec() }.into());
            }
        }
        let (weights, from) = self.weights_of(o, &nodes)?;
        let weights = NodeWeights::new(nodes.into_iter().zip(weights));
        Ok((weights.map_err(|e| UsageError::new(e.to_string()))?, from))
    }

    fn weights_of(
        &self,
        o: &ChosenLayout,
        nodes: &[u32],
    ) -> Result<(Vec<u8>, WeightsSource), InterleaveError> {
        if let Some(given) = &o.weights {
            if given.0.len() != nodes.len() {
                let text = format!(
                    "{} weights are given for {} nodes ({}): give one for each",
                    given.0.len(),
                    nodes.len(),
                    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
                );
                return Err(UsageError::new(text).into());
            }
            return Ok((given.0.clone(), WeightsSource::Given));
        }
        let (all, from) = match (&self.weights, self.by_bandwidth()) {
            (Some(setting), _) => (setting.weights.clone(), WeightsSource::Machine),
            (None, Some(weights)) => (weights, WeightsSource::Bandwidth),
            (None, None) => {
                let text = "neither the kernel nor firmware provides weights here: give \
                            --weights (isotherm interleave probe measures them)";
                return Err(UsageError::new(text).into());
            }
        };
        let of = |node: &u32| all.get(node).copied().unwrap_or(1);
        Ok((nodes.iter().map(of).collect(), from))
    }
}

/// Weights in the form that options accept: `0=9,1=1`.
pub fn text(weights: &NodeWeights) -> String {
    let one = |(node, weight): &(u32, u8)| format!("{node}={weight}");
    weights.nodes().iter().map(one).collect::<Vec<_>>().join(",")
}

/// Whether the kernel places pages touched in this mapping by address alone, as far as user space can observe.
/// It does not for the first stack, which the kernel moves after its first use, nor for shared memory, whose
/// page index starts at the inode number.
pub fn is_by_address(m: &Mapping) -> bool {
    matches!(m.kind, MappingKind::Anonymous | MappingKind::Heap) && !is_shared_memory(&m.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::WeightList;

    fn machine(nodes: &[u32]) -> MachineNodes {
        let node = |&node: &u32| Node {
            node,
            total_bytes: 1 << 30,
            free_bytes: 1 << 29,
            cpus: String::new(),
            distances: BTreeMap::new(),
            any: None,
            cpu: None,
            tier: None,
        };
        MachineNodes { nodes: nodes.iter().map(node).collect(), weights: None }
    }

    fn layout(nodes: &[u32], weights: &[u8]) -> ChosenLayout {
        let weights = (!weights.is_empty()).then(|| WeightList(weights.to_vec()));
        ChosenLayout { nodes: nodes.to_vec(), weights }
    }

    #[test]
    fn weights_belong_to_nodes_in_their_order() {
        let (rule, from) =
            machine(&[0, 1, 2]).rule(&layout(&[2, 0], &[1, 9]), &[0, 1, 2], 7).unwrap();
        assert_eq!((text(&rule), from), ("0=9,2=1".to_owned(), WeightsSource::Given));
    }

    #[test]
    fn missing_nodes_are_reported() {
        let m = machine(&[0, 1, 2]);
        for (nodes, weights, allowed, said) in [
            (&[3][..], &[1][..], &[0, 1, 2][..], "no node 3"),
            (&[0, 1], &[1, 1], &[0], "may use only memory of the nodes 0, and not of node 1"),
            (&[0, 1], &[1], &[0, 1], "1 weights are given for 2 nodes"),
            (&[0, 0], &[1, 1], &[0], "named twice"),
            (&[0, 1], &[], &[0, 1], "give --weights"),
        ] {
            let e = m.rule(&layout(nodes, weights), allowed, 7).unwrap_err();
            assert!(e.to_string().contains(said), "{e}");
        }
        let one = machine(&[0]).rule(&layout(&[], &[]), &[0], 7).unwrap_err();
        assert!(one.to_string().contains("one node"), "{one}");
    }

    #[test]
    fn weights_of_the_machine_precede_those_of_firmware() {
        let mut m = machine(&[0, 1]);
        let access = |mb_s| isotherm_linux::numa::NodePerformance {
            read_mb_s: Some(mb_s),
            write_mb_s: Some(mb_s),
            ..Default::default()
        };
        m.nodes[0].cpu = Some(access(2000));
        m.nodes[1].cpu = Some(access(1000));
        let none = layout(&[], &[]);
        let (rule, from) = m.rule(&none, &[0, 1], 7).unwrap();
        assert_eq!((text(&rule), from), ("0=21,1=10".to_owned(), WeightsSource::Bandwidth));
        m.weights = Some(WeightSetting { auto: None, weights: [(0, 3), (1, 1)].into() });
        let (rule, from) = m.rule(&none, &[0, 1], 7).unwrap();
        assert_eq!((text(&rule), from), ("0=3,1=1".to_owned(), WeightsSource::Machine));
    }
}
