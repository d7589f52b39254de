//! The time of a memory access: the latency of its node, and the queue of all accesses to that node.

use isotherm_core::PAGE_SIZE;

use super::spec::MachineSpec;

/// Size of a cache line.
const LINE_BYTES: u64 = 64;

/// Memory as CPUs access it.
#[derive(Debug)]
pub(super) struct Bus {
    /// by CPU
    node_of: Vec<usize>,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    busy_until_ps: u64,
    page_ps: u64,
    line_ps: u64,
    /// by the node of the CPU
    latency_ns: Vec<u64>,
}

impl Bus {
    pub fn new(spec: &MachineSpec) -> Self {
        let layout = spec.layout();
        let (cpus, n) = (spec.cpus as usize, spec.nodes.len());
        let node = |(i, node): (usize, &super::NodeSpec)| {
            // A line takes a few ns, so it needs a finer unit.
            let ps = |bytes: u64| (bytes * 1_000_000 / u64::from(node.bandwidth_mb_s)).max(1);
            let latency =
                |from: usize| node.latency_ns.saturating_mul(layout.nodes[from].distances[i]) / 10;
            Node {
                busy_until_ps: 0,
                page_ps: ps(PAGE_SIZE),
                line_ps: ps(LINE_BYTES),
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

    /// When a CPU receives a page that it requests from a node at `now`, in ns.
    pub fn page(&mut self, cpu: u32, node: usize, now: u64) -> u64 {
        let busy = self.nodes[node].page_ps;
        self.access(cpu, node, now, busy)
    }

    /// The same for a cache line.
    #[inline]
    pub fn line(&mut self, cpu: u32, node: usize, now: u64) -> u64 {
        let busy = self.nodes[node].line_ps;
        self.access(cpu, node, now, busy)
    }

    #[inline]
    fn access(&mut self, cpu: u32, node: usize, now: u64, busy_ps: u64) -> u64 {
        let from = self.node_of(cpu);
        let node = &mut self.nodes[node];
        node.busy_until_ps = node.busy_until_ps.max(now * 1000) + busy_ps;
        node.busy_until_ps.div_ceil(1000) + node.latency_ns[from]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_at_the_bandwidth_of_the_node() {
        for bandwidth_mb_s in [10_000, 33_000, 63_000, 200_000] {
            let node = "zones = [{ kind = 'normal', pages = 25000 }]\nlatency_ns = 0\n";
            let node = format!("[[node]]\n{node}bandwidth_mb_s = {bandwidth_mb_s}\n");
            let spec = MachineSpec::parse(&format!("about = 'one'\ncpus = 1\n{node}")).unwrap();
            // All are requested at once.
            let mut bus = Bus::new(&spec);
            let last = (0..1000).map(|_| bus.line(0, 0, 0)).max();
            let line_ps = LINE_BYTES * 1_000_000 / bandwidth_mb_s;
            assert_eq!(last, Some((1000 * line_ps).div_ceil(1000)), "{bandwidth_mb_s} MB/s");
        }
    }
}
