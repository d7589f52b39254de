//! The order of zones for an allocation: `build_zonelists` of mm/page_alloc.c.

use serde::{Deserialize, Serialize};

use crate::layout::{KINDS, Layout};

/// The order of fallback to other zones and nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ZonelistOrder {
    /// all zones of a node, then the next node
    #[default]
    Node,
    /// the highest kind on all nodes, then the next kind: a local zone may follow a remote one
    Zone,
}

/// The nodes in order of distance from `from`. Of equally distant nodes, those with higher numbers than
/// `from` come first.
#[must_use]
fn nodes_by_distance(layout: &Layout, from: usize) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..layout.nodes.len()).collect();
    let distance = |n: usize| layout.nodes[from].distances[n] + u32::from(n < from);
    nodes.sort_by_key(|&n| (n != from, distance(n), n));
    nodes
}

/// For each requested kind, the numbers of the zones in order of preference. `number` gives the number of the
/// zone of a kind on a node, if it exists.
#[must_use]
pub fn zonelists(
    layout: &Layout,
    from: usize,
    order: ZonelistOrder,
    number: impl Fn(usize, usize) -> Option<usize>,
) -> [Vec<usize>; 5] {
    let nodes = nodes_by_distance(layout, from);
    std::array::from_fn(|class| {
        let kinds = || (0..=class.min(KINDS.len() - 1)).rev();
        let pairs: Vec<(usize, usize)> = match order {
            ZonelistOrder::Node => {
                nodes.iter().flat_map(|&n| kinds().map(move |k| (n, k))).collect()
            }
            ZonelistOrder::Zone => {
                kinds().flat_map(|k| nodes.iter().map(move |&n| (n, k))).collect()
            }
        };
        pairs.into_iter().filter_map(|(node, kind)| number(node, kind)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{NodeLayout, ZoneKind, ZoneLayout};

    fn four_nodes() -> Layout {
        let zone = |kind| ZoneLayout { kind, managed: 1000 };
        let node = |i: usize| NodeLayout {
            zones: if i == 0 {
                vec![zone(ZoneKind::Dma32), zone(ZoneKind::Normal)]
            } else {
                vec![zone(ZoneKind::Normal)]
            },
            // A ring: the opposite node is more distant.
            distances: (0..4).map(|j: usize| [10, 16, 22, 16][i.abs_diff(j)]).collect(),
        };
        Layout { cpus: 4, nodes: (0..4).map(node).collect() }
    }

    /// Node 0 has the zones 0 (DMA32) and 1; the other nodes have the zones 2 to 4.
    fn number(node: usize, kind: usize) -> Option<usize> {
        match (node, kind) {
            (0, 1) => Some(0),
            (n, 2) => Some(n + 1),
            _ => None,
        }
    }

    #[test]
    fn near_nodes_come_first_and_those_behind_us_before_those_in_front() {
        let layout = four_nodes();
        assert_eq!(nodes_by_distance(&layout, 0), [0, 1, 3, 2]);
        assert_eq!(nodes_by_distance(&layout, 1), [1, 2, 0, 3]);
        assert_eq!(nodes_by_distance(&layout, 3), [3, 0, 2, 1]);
    }

    #[test]
    fn both_orders() {
        let layout = four_nodes();
        let list = |from, order| zonelists(&layout, from, order, number);
        assert_eq!(list(0, ZonelistOrder::Node)[2], [1, 0, 2, 4, 3]);
        assert_eq!(list(0, ZonelistOrder::Zone)[2], [1, 2, 4, 3, 0]);
        assert_eq!(list(2, ZonelistOrder::Zone)[1], [0], "DMA32 is on node 0 alone");
    }
}
