//! The time of a memory access: the latency of its node, and the queue of all accesses to that node.

use isotherm_core::PAGE_SIZE;

use super::spec::MachineSpec;

/// Size of a cache line.
const LINE_BYTES: u64 = 64;

/// Memory as CPUs access it. All times are in ns.
#[derive(Debug)]
pub(super) struct Bus {
    /// by CPU
    node_of: Vec<usize>,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    busy_until: u64,
    page_ns: u64,
    line_ns: u64,
    /// by the node of the CPU
    latency_ns: Vec<u64>,
}

impl Bus {
    pub fn new(spec: &MachineSpec) -> Self {
        let layout = spec.layout();
        let (cpus, n) = (spec.cpus as usize, spec.nodes.len());
        let node = |(i, node): (usize, &super::NodeSpec)| {
            let ns = |bytes: u64| bytes * 1000 / u64::from(node.bandwidth_mb_s);
            let latency =
                |from: usize| node.latency_ns.saturating_mul(layout.nodes[from].distances[i]) / 10;
            Node {
                busy_until: 0,
                page_ns: ns(PAGE_SIZE),
                line_ns: ns(LINE_BYTES),
                latency_ns: (0..n).map(|from| latency(from).into()).collect(),
            }
        };
        // CPUs are distributed evenly over the nodes, in order.
        let node_of = (0..cpus).map(|cpu| cpu * n / cpus).collect();
        Bus { node_of, nodes: spec.nodes.iter().enumerate().map(node).collect() }
    }

    /// The node that a CPU belongs to.
    #[inline]
    pub fn node_of(&self, cpu: u32) -> usize {
        self.node_of.get(cpu as usize).copied().unwrap_or(0)
    }

    /// When a CPU receives a page that it requests from a node at `now`.
    pub fn page(&mut self, cpu: u32, node: usize, now: u64) -> u64 {
        let busy = self.nodes[node].page_ns;
        self.access(cpu, node, now, busy)
    }

    /// The same for a cache line.
    #[inline]
    pub fn line(&mut self, cpu: u32, node: usize, now: u64) -> u64 {
        let busy = self.nodes[node].line_ns;
        self.access(cpu, node, now, busy)
    }

    #[inline]
    fn access(&mut self, cpu: u32, node: usize, now: u64, busy: u64) -> u64 {
        let from = self.node_of(cpu);
        let node = &mut self.nodes[node];
        node.busy_until = node.busy_until.max(now) + busy;
        node.busy_until + node.latency_ns[from]
    }
}
