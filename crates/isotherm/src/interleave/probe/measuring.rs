//! The measurements of each node, and their durations.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use isotherm_linux::numa::{Bound, Mix, NumaError, measure};
use isotherm_linux::sys::allowed_nodes;
use tracing::info;

use super::results::{LatencyPoint, NodeFigures, PAUSES, Probed};
use crate::interleave::rule::MachineNodes;
use crate::interleave::{ChosenLayout, InterleaveError, root};
use crate::stop::Stop;
use crate::units::WeightList;

/// Duration of one measurement if there is time for all of them.
const MEASUREMENT_TIME: Duration = Duration::from_secs(1);
/// Measurements per node: three mixes, the idle latency, and the curve.
const SLICES: u32 = 4 + PAUSES.len() as u32;
/// Minimum memory that each thread streams over, in bytes; it should exceed the caches.
const MIN_THREAD_BYTES: u64 = 32 << 20;
/// All threads together stream over this multiple of the largest cache.
const CACHES: u64 = 2;
/// Upper limit on the cache size that the machine reports, in bytes.
const MAX_CACHE_BYTES: u64 = 256 << 20;

/// The nodes to measure: the named ones, if they exist and are allowed, else all allowed ones.
pub fn nodes_to_measure(
    machine: &MachineNodes,
    nodes: &[u32],
) -> Result<Vec<u32>, InterleaveError> {
    let allowed: Vec<u32> = allowed_nodes().map_err(NumaError::Policy)?.nodes().collect();
    if nodes.is_empty() {
        return Ok(machine.nodes.iter().map(|n| n.node).filter(|n| allowed.contains(n)).collect());
    }
    let one = WeightList(vec![1; nodes.len()]);
    let layout = ChosenLayout { nodes: nodes.to_vec(), weights: Some(one) };
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let (rule, _) = machine.rule(&layout, &allowed, own)?;
    Ok(rule.nodes().iter().map(|n| n.0).collect())
}

/// The plan of a measurement.
#[derive(Debug, Clone)]
pub struct ProbePlan {
    /// maximum duration
    pub time: Duration,
    /// number of threads that read at once
    pub threads: usize,
    slice: Duration,
    per_thread: u64,
    chain: u64,
}

impl ProbePlan {
    /// A plan for these nodes within this time. Fails if a node has too little free memory.
    pub fn new(machine: &MachineNodes, nodes: &[u32], time: Duration) -> Result<Self, NumaError> {
        let threads = available_parallelism().map_or(1, usize::from);
        let cache = last_cache(root()) * CACHES;
        let per_thread = (cache / threads as u64).max(MIN_THREAD_BYTES).next_multiple_of(2 << 20);
        let chain = cache.max(2 * MIN_THREAD_BYTES).next_multiple_of(2 << 20);
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
        // The other half of the time is for touching the memory for the first time.
        let slice = MEASUREMENT_TIME.min(time / 2 / count / SLICES);
        let plan = ProbePlan { time, threads, slice, per_thread, chain };
        for node in machine.nodes.iter().filter(|n| nodes.contains(&n.node)) {
            let needed = plan.bytes_a_node();
            if node.free_bytes / 2 < needed {
                let source = std::io::Error::other(format!(
                    "{} MiB are free, and isotherm leaves half of it free",
                    node.free_bytes >> 20
                ));
                let (mib, node) = (needed >> 20, node.node);
                return Err(NumaError::Memory { mib, node, source });
            }
        }
        Ok(plan)
    }

    /// Memory that is allocated on each node in turn, in bytes.
    pub fn bytes_a_node(&self) -> u64 {
        self.per_thread * self.threads as u64 + self.chain
    }
}

/// Size of the largest cache of the first CPU, in bytes; 0 if unknown.
fn last_cache(root: &Path) -> u64 {
    let size = |i: u32| {
        let path = root.join(format!("sys/devices/system/cpu/cpu0/cache/index{i}/size"));
        crate::units::size(std::fs::read_to_string(path).ok()?.trim()).ok()
    };
    (0..8).filter_map(size).max().unwrap_or(0).min(MAX_CACHE_BYTES)
}

/// A measurement in progress.
pub struct Measuring<'a> {
    plan: ProbePlan,
    stop: &'a Stop,
    since: Instant,
    nodes: Vec<NodeFigures>,
}

impl<'a> Measuring<'a> {
    /// Starts to measure; a signal ends the measurement early.
    pub fn begin(plan: ProbePlan, stop: &'a Stop) -> Self {
        Measuring { plan, stop, since: Instant::now(), nodes: Vec::new() }
    }

    /// Measures a node, until the time is over.
    pub fn node(&mut self, node: u32) -> Result<(), NumaError> {
        let mut figures = NodeFigures::of(node);
        info!("measuring node {node}");
        let Some((load, chain)) = self.memory(node)? else {
            self.nodes.push(figures);
            return Ok(());
        };
        for mix in Mix::ALL {
            let bandwidth = self.slice(&load, (mix, 0), None).map(|p| p.mb_s);
            figures.bandwidth.insert(mix.name(), bandwidth);
        }
        figures.idle_ns = self.slice(&[], (Mix::Read, 0), Some(&chain)).and_then(|p| p.ns);
        // The chain of dependent reads requires one CPU.
        let beside = load.get(..load.len().max(2) - 1).unwrap_or(&load);
        for pause in PAUSES {
            figures.curve.extend(self.slice(beside, (Mix::TwoToOne, pause), Some(&chain)));
        }
        figures.curve.sort_by(|a, b| a.mb_s.total_cmp(&b.mb_s));
        self.nodes.push(figures);
        Ok(())
    }

    /// The memory to stream over, and the chain of dependent reads; `None` if there is no time left.
    fn memory(&self, node: u32) -> Result<Option<(Vec<Bound>, Bound)>, NumaError> {
        let map = |len| Bound::map(node, len, || self.is_over());
        let load = (0..self.plan.threads).map(|_| map(self.plan.per_thread));
        let Some(load) = load.collect::<Result<Option<Vec<_>>, _>>()? else { return Ok(None) };
        let Some(chain) = map(self.plan.chain)? else { return Ok(None) };
        chain.chain();
        Ok(Some((load, chain)))
    }

    fn slice(
        &self,
        load: &[Bound],
        how: (Mix, u32),
        chain: Option<&Bound>,
    ) -> Option<LatencyPoint> {
        if self.is_over() {
            return None;
        }
        let found = measure(load, how, chain, self.plan.slice);
        Some(LatencyPoint { mb_s: found.bytes_per_s / 1e6, ns: found.ns })
    }

    fn is_over(&self) -> bool {
        self.stop.is_over() || self.since.elapsed() + self.plan.slice > self.plan.time
    }

    /// The figures measured so far.
    pub fn end(self) -> Probed {
        let seconds = self.since.elapsed().as_secs_f64();
        Probed::new(self.nodes, self.plan.threads, seconds, self.stop.is_over())
    }
}
