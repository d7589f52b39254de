//! Policies with free memory, with full memory, and with nodes that are removed at the same time.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod rules;
mod spill;

use isotherm_mm::mempolicy::{FilesOf, Mode, NodeMapping, Policy, Task, WeightFilesModel};
use isotherm_mm::{
    AllocRequest, FrameId, Layout, Memory, NodeLayout, NodeSet, Rules, ZoneKind, ZoneLayout,
};

/// Pages of each node.
pub(crate) const PAGES: i64 = 4000;

/// Nodes in a row with one zone each. Their distance grows with the difference of their numbers.
pub(crate) fn memory(nodes: usize) -> Memory {
    let node = |i: usize| NodeLayout {
        zones: vec![ZoneLayout { kind: ZoneKind::Normal, managed: PAGES }],
        distances: (0..nodes).map(|j| 10 + 10 * u32::try_from(i.abs_diff(j)).unwrap()).collect(),
    };
    let layout = Layout { cpus: 1, nodes: (0..nodes).map(node).collect() };
    Memory::new(&layout, Rules { drift: false, ..Rules::linux_4_8() }).unwrap()
}

pub(crate) fn request(node: usize) -> AllocRequest {
    AllocRequest { cpu: 0, node, class: ZoneKind::Normal, kind: None, write: false, owner: 0 }
}

pub(crate) fn set(nodes: &[usize]) -> NodeSet {
    nodes.iter().copied().collect()
}

/// Files with these weights, of the nodes from 0 on.
pub(crate) fn weights(weights: &[u8]) -> WeightFilesModel {
    let mut files = WeightFilesModel::new(FilesOf::V6_16, (0..weights.len()).collect());
    for (node, weight) in weights.iter().enumerate() {
        files.store(node, &format!("{weight}\n")).unwrap();
    }
    files
}

pub(crate) fn task(mode: Mode, nodes: NodeSet, allowed: NodeSet) -> Task {
    Task::new(Policy::new(mode, NodeMapping::Remapped, nodes, allowed).unwrap(), allowed)
}

/// Allocated pages by node.
pub(crate) fn given(memory: &Memory) -> Vec<u64> {
    memory.zones().iter().map(|z| z.stats.allocated).collect()
}

pub(crate) fn node_of(memory: &Memory, frame: FrameId) -> usize {
    memory.zones()[memory.zone_of(frame)].node
}
