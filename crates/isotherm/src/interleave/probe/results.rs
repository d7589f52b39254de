//! The measured figures, the weights computed from them, and the limits of the measurement.

use std::collections::BTreeMap;
use std::fmt::Write;

use isotherm_mm::mempolicy::weights_from_bandwidth;
use isotherm_report::{ChartLine, Lines, Plot};
use serde::Serialize;

/// Length of the pause after each 256 KiB, in turns of an empty loop: from a light load to the maximum.
pub(super) const PAUSES: [u32; 7] = [30_000, 8000, 3000, 1200, 500, 150, 0];

/// One point of the curve of latency over load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyPoint {
    /// bandwidth of the load, in 10^6 bytes per second
    pub mb_s: f64,
    /// latency of a dependent read, in ns
    pub ns: Option<f64>,
}

/// The figures of one node. `None`: there was no time to measure it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeFigures {
    /// number of the node
    pub node: u32,
    /// bandwidth from and to memory, in 10^6 bytes per second, by mix of reads and writes
    pub bandwidth: BTreeMap<&'static str, Option<f64>>,
    /// latency of a dependent read without other load, in ns
    pub idle_ns: Option<f64>,
    /// latency at a mix of two reads per write, in ascending order of the load
    pub curve: Vec<LatencyPoint>,
}

impl NodeFigures {
    /// The figures of a node that was not measured.
    pub fn of(node: u32) -> Self {
        NodeFigures { node, bandwidth: BTreeMap::new(), idle_ns: None, curve: Vec::new() }
    }
}

/// The figures of all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probed {
    schema_version: u32,
    seconds: f64,
    threads: usize,
    nodes: Vec<NodeFigures>,
    /// weights by mix of reads and writes, in the order of the nodes; empty for fewer than two nodes
    weights: BTreeMap<&'static str, Vec<u8>>,
    remarks: Vec<String>,
}

impl Probed {
    /// `stopped`: a signal ended the measurement early.
    pub fn new(nodes: Vec<NodeFigures>, threads: usize, seconds: f64, stopped: bool) -> Self {
        let weights = weights(&nodes);
        let mut probed =
            Probed { schema_version: 1, seconds, threads, nodes, weights, remarks: Vec::new() };
        probed.remarks = probed.remarks(stopped);
        probed
    }

    fn remarks(&self, stopped: bool) -> Vec<String> {
        let mut all = Vec::new();
        if self.nodes.len() < 2 {
            all.push(
                "One node: the curve shows its bandwidth, and the load at which its latency \
                 begins to grow. Weights require two nodes. A second node helps only under loads \
                 near the end of the curve."
                    .to_owned(),
            );
        }
        let why = if stopped { "a signal has stopped it" } else { "make --time longer" };
        let with = |is_so: fn(&NodeFigures) -> bool| {
            let nodes = self.nodes.iter().filter(|n| is_so(n)).map(|n| n.node.to_string());
            nodes.collect::<Vec<_>>().join(", ")
        };
        let unmeasured = with(|n| n.curve.is_empty());
        if !unmeasured.is_empty() {
            all.push(format!("There was no time to measure nodes {unmeasured}: {why}."));
        }
        let cut = with(|n| (1..PAUSES.len()).contains(&n.curve.len()));
        if !cut.is_empty() {
            all.push(format!(
                "The curve of nodes {cut} ends early, without the heaviest loads: {why}."
            ));
        }
        if self.threads < 2 {
            all.push("One CPU: load and chain share it, so the curve means little.".to_owned());
        }
        if let Some(text) = self.typed() {
            all.push(format!(
                "To use these weights: isotherm interleave set {text}. They help where bandwidth \
                 is short. Keep memory that is not busy on the node of the lowest latency."
            ));
        }
        all
    }

    /// The weights for two reads per write, in the form that options accept.
    fn typed(&self) -> Option<String> {
        let weights = self.weights.get("2:1")?;
        let pair = |(n, w): (&NodeFigures, &u8)| format!("{}={w}", n.node);
        Some(self.nodes.iter().zip(weights).map(pair).collect::<Vec<_>>().join(","))
    }

    /// The figures as text, for people.
    pub fn text(&self) -> String {
        let kinds: Vec<&str> = self
            .nodes
            .first()
            .map(|n| n.bandwidth.keys().copied().rev().collect())
            .unwrap_or_default();
        let heads: String = kinds.iter().map(|k| format!("{:>12}", format!("{k} MB/s"))).collect();
        let mut out = format!("{:8}{heads}{:>12}{:>14}\n", "node", "idle ns", "loaded ns");
        let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.0}"));
        for n in &self.nodes {
            let of = |kind: &&str| n.bandwidth.get(*kind).copied().flatten();
            let cells: String = kinds.iter().map(|k| format!("{:>12}", number(of(k)))).collect();
            let loaded = n.curve.last().and_then(|p| p.ns);
            let (idle, loaded) = (number(n.idle_ns), number(loaded));
            let _ = writeln!(out, "{:<8}{cells}{idle:>12}{loaded:>14}", n.node);
        }
        if !self.weights.is_empty() {
            for kind in &kinds {
                let weights = self.weights.get(kind).map_or(&[][..], Vec::as_slice);
                let text: Vec<String> = weights.iter().map(u8::to_string).collect();
                let _ = writeln!(out, "weights by {kind}: {}", text.join(":"));
            }
        }
        let _ = writeln!(out, "{} threads, {:.0} s\n", self.threads, self.seconds);
        self.remarks.iter().for_each(|r| out += &format!("- {r}\n"));
        out
    }

    /// A plot of latency over bandwidth for each node.
    pub fn picture(&self) -> Lines {
        let xs = self.nodes.iter().flat_map(|n| &n.curve).map(|p| p.mb_s / 1000.0);
        let most = xs.fold(0.1_f64, f64::max);
        Lines {
            title: "Latency of memory under load".into(),
            note: "Where the line bends upwards, bandwidth is short: from there on, interleaving \
                   with another node helps."
                .into(),
            x: "bandwidth of the load, 10^9 bytes a second; two reads for a write".into(),
            y: "time of a read that waits for the one before, ns".into(),
            marks: marks(most),
            plots: self.nodes.iter().map(plot).collect(),
            basis: format!("Measured: {} threads, {:.0} s.", self.threads, self.seconds),
        }
    }
}

fn plot(n: &NodeFigures) -> Plot {
    let idle = n.idle_ns.map(|ns| (0.0, ns));
    let loaded = n.curve.iter().filter_map(|p| Some((p.mb_s / 1000.0, p.ns?)));
    let points = idle.into_iter().chain(loaded).collect();
    let name = format!("node {}", n.node);
    Plot { name: name.clone(), lines: vec![ChartLine { name: "measured".into(), points }] }
}

/// Round numbers from 0 to `most`, at most ten.
fn marks(most: f64) -> Vec<(f64, String)> {
    let step = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
    let step = step.into_iter().find(|s| most / s <= 10.0).unwrap_or(most / 10.0);
    let digits = usize::from(step < 1.0);
    let count = (most / step) as u32;
    (0..=count).map(|i| f64::from(i) * step).map(|x| (x, format!("{x:.digits$}"))).collect()
}

/// Weights for each mix that was measured on all nodes.
fn weights(nodes: &[NodeFigures]) -> BTreeMap<&'static str, Vec<u8>> {
    let kinds = nodes.first().map(|n| n.bandwidth.keys().copied().collect::<Vec<_>>());
    let of = |kind: &'static str| {
        let mb_s =
            nodes.iter().map(|n| Some(n.bandwidth.get(kind).copied().flatten()?.max(1.0) as u32));
        Some((kind, weights_from_bandwidth(&mb_s.collect::<Option<Vec<u32>>>()?)))
    };
    let several = nodes.len() > 1;
    kinds.filter(|_| several).unwrap_or_default().into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: u32, mb_s: Option<f64>) -> NodeFigures {
        let point = |mb_s| LatencyPoint { mb_s, ns: Some(100.0) };
        NodeFigures {
            bandwidth: ["read", "2:1", "1:1"].map(|kind| (kind, mb_s)).into(),
            idle_ns: Some(90.0),
            curve: vec![point(1000.0), point(2000.0)],
            ..NodeFigures::of(node)
        }
    }

    #[test]
    fn weights_are_those_of_the_kernel() {
        let two =
            Probed::new(vec![node(0, Some(208_000.0)), node(2, Some(24_000.0))], 8, 3.0, false);
        assert_eq!(two.weights["read"], [28, 3]);
        let text = two.text();
        assert!(text.contains("weights by 2:1: 28:3"), "{text}");
        assert!(text.contains("interleave set 0=28,2=3"), "{text}");
    }

    #[test]
    fn one_node_gives_no_weights() {
        let one = Probed::new(vec![node(0, Some(9000.0))], 2, 3.0, false);
        assert!(one.weights.is_empty());
        assert!(one.text().contains("Weights require two nodes"), "{}", one.text());
        let part = Probed::new(vec![node(0, Some(9000.0)), NodeFigures::of(1)], 2, 3.0, false);
        assert!(part.weights.is_empty());
        let text = part.text();
        assert!(text.contains("There was no time to measure nodes 1: make --time"), "{text}");
        assert!(text.contains("The curve of nodes 0 ends early"), "{text}");
        let stopped = Probed::new(vec![NodeFigures::of(0)], 2, 3.0, true).text();
        assert!(stopped.contains("a signal has stopped it"), "{stopped}");
    }

    #[test]
    fn a_plot_for_each_node() {
        let picture = Probed::new(vec![node(0, None), node(1, None)], 2, 3.0, false).picture();
        let starts: Vec<_> = picture.plots.iter().map(|p| p.lines[0].points[0]).collect();
        assert_eq!(starts, [(0.0, 90.0); 2]);
        assert_eq!(marks(12.0).len(), 7);
        assert_eq!(marks(0.5).last().unwrap().1, "0.5");
    }
}
