//! Nodes of a machine of one's own, and what weights would make of them.

use serde::{Deserialize, Serialize};

use super::curves::{WeightCurve, curve};
use super::latency::{Curve, Pair};
use super::law::{as_shares, automatic_weights, best_weights, ratio, throughput};
use super::loads::{Loads, loads};
use super::network::{MAX_LINES, Station, bandwidths};

/// At most so many nodes.
const MAX_NODES: usize = 64;

/// A machine, in a file like `crates/sim/lab/two-nodes.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodesSpec {
    /// what it is, in a line
    pub about: String,
    /// the near one first
    pub node: Vec<NodeSpec>,
    /// how many accesses are under way at a time; if it is told, queues are reckoned with
    pub lines_in_flight: Option<u32>,
    /// what an access is
    #[serde(default = "line")]
    pub line_bytes: u32,
    /// latency over load
    #[serde(default)]
    pub curve: Curve,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// what it is called by
    pub name: String,
    /// what it gives alone, in 10^6 bytes a second
    pub bandwidth_mb_s: f64,
    /// what an access takes if nobody else is there
    pub idle_ns: Option<f64>,
}

fn line() -> u32 {
    64
}

/// Why something is no machine.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    /// no TOML, or other keys than there are
    #[error("the machine cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// how many nodes
    #[error("there are {0} nodes: choose 2 to {MAX_NODES}")]
    Nodes(usize),
    /// a node
    #[error(
        "node {0} makes no sense: choose a bandwidth of 1 to 10^9 MB/s, and an idle latency of 1 to 10^9 ns"
    )]
    Node(String),
    /// accesses
    #[error("choose 1 to {MAX_LINES} lines in flight, of 1 to {MAX_LINES} bytes")]
    Lines,
    /// what lines in flight need
    #[error("lines in flight take an idle latency of each node: tell it, or leave the lines out")]
    Idle,
    /// the curve
    #[error(
        "the curve makes no sense: 0 < flat < straight < 1, rise from 0 on, full from 1 + rise on"
    )]
    Curve,
}

impl NodesSpec {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no such thing or makes no sense.
    pub fn parse(text: &str) -> Result<Self, NodesError> {
        let found: NodesSpec = toml::from_str(text)?;
        found.check()?;
        Ok(found)
    }

    fn check(&self) -> Result<(), NodesError> {
        if !(2..=MAX_NODES).contains(&self.node.len()) {
            return Err(NodesError::Nodes(self.node.len()));
        }
        let sound = |value: f64| (1.0..=1e9).contains(&value);
        let is_sound = |n: &&NodeSpec| sound(n.bandwidth_mb_s) && n.idle_ns.is_none_or(sound);
        if let Some(bad) = self.node.iter().find(|n| !is_sound(n)) {
            return Err(NodesError::Node(bad.name.clone()));
        }
        let lines = self.lines_in_flight.unwrap_or(1);
        if [lines, self.line_bytes].iter().any(|n| !(1..=MAX_LINES).contains(n)) {
            return Err(NodesError::Lines);
        }
        if self.lines_in_flight.is_some() && self.idle_ns().is_none() {
            return Err(NodesError::Idle);
        }
        if self.curve.is_plausible() { Ok(()) } else { Err(NodesError::Curve) }
    }

    /// What weights would make of it.
    #[must_use]
    pub fn forecast(&self) -> Forecast {
        let nodes = self.gb_s();
        let named = |name: &str, weights: Vec<f64>| self.outlook(name, &weights);
        let near = nodes.iter().enumerate().map(|n| if n.0 == 0 { 1.0 } else { 0.0 }).collect();
        let (best, kernels) = (best_weights(&nodes), automatic_weights(&nodes));
        Forecast {
            schema_version: 1,
            machine: self.about.clone(),
            nodes: self.node.iter().map(NodeSpec::told).collect(),
            outlooks: vec![
                named("near node only", near),
                named("even", vec![1.0; nodes.len()]),
                named(&format!("{}, short", ratio(&best)), as_shares(&best)),
                named(&format!("{}, the kernel's own", ratio(&kernels)), as_shares(&kernels)),
                named("perfect", nodes.clone()),
            ],
            weights: best,
            automatic: kernels,
            latency: self.pair().map(|pair| loads(&self.about, &pair)),
            curve: (nodes.len() == 2).then(|| self.curve_of(&nodes)),
        }
    }

    fn outlook(&self, name: &str, weights: &[f64]) -> Outlook {
        Outlook {
            layout: name.to_owned(),
            law_gb_s: throughput(&self.gb_s(), weights),
            network_gb_s: self.network(weights),
        }
    }

    /// In 10^9 bytes a second.
    fn gb_s(&self) -> Vec<f64> {
        self.node.iter().map(|n| n.bandwidth_mb_s / 1e3).collect()
    }

    fn idle_ns(&self) -> Option<Vec<f64>> {
        self.node.iter().map(|n| n.idle_ns).collect()
    }

    fn network(&self, weights: &[f64]) -> Option<f64> {
        let (idle, lines) = (self.idle_ns()?, self.lines_in_flight?);
        let sum: f64 = weights.iter().sum();
        let nodes = self.gb_s().into_iter().zip(idle).zip(weights);
        let station = |((bandwidth, idle_ns), w): ((f64, f64), &f64)| Station {
            bandwidth,
            idle_ns,
            share: w / sum,
        };
        bandwidths(&nodes.map(station).collect::<Vec<_>>(), self.line_bytes, lines).pop()
    }

    /// If there are two nodes, and their latencies are told.
    fn pair(&self) -> Option<Pair> {
        let bandwidths = <[f64; 2]>::try_from(self.gb_s()).ok()?;
        let idle_ns = <[f64; 2]>::try_from(self.idle_ns()?).ok()?;
        Some(Pair { bandwidths, idle_ns, curve: self.curve })
    }

    fn curve_of(&self, nodes: &[f64]) -> WeightCurve {
        let network = |weights: &[f64]| self.network(weights);
        curve(("machine", &self.about), nodes, network, Vec::new())
    }
}

impl NodeSpec {
    fn told(&self) -> ForecastNode {
        ForecastNode {
            name: self.name.clone(),
            bandwidth_mb_s: self.bandwidth_mb_s,
            idle_ns: self.idle_ns,
        }
    }
}

/// What weights would make of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// of this form
    pub schema_version: u32,
    /// what it is
    pub machine: String,
    /// as they were told
    pub nodes: Vec<ForecastNode>,
    /// whole weights of a short round, within a percent of the best of any round as short
    pub weights: Vec<u8>,
    /// the kernel's own
    pub automatic: Vec<u8>,
    /// layout by layout
    pub outlooks: Vec<Outlook>,
    /// of two nodes whose latencies are told
    pub latency: Option<Loads>,
    /// of two nodes
    pub curve: Option<WeightCurve>,
}

/// A node, as it was told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForecastNode {
    /// what it is called by
    pub name: String,
    /// what it gives alone, in 10^6 bytes a second
    pub bandwidth_mb_s: f64,
    /// what an access takes if nobody else is there
    pub idle_ns: Option<f64>,
}

/// What a layout gives, in 10^9 bytes a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// where memory lies
    pub layout: String,
    /// by the law of the slowest node
    pub law_gb_s: f64,
    /// by the closed network, if lines in flight are told
    pub network_gb_s: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = include_str!("../../../lab/two-nodes.toml");

    fn outlook<'a>(forecast: &'a Forecast, part: &str) -> &'a Outlook {
        forecast.outlooks.iter().find(|o| o.layout.contains(part)).unwrap()
    }

    #[test]
    fn two_nodes() {
        let forecast = NodesSpec::parse(TWO).unwrap().forecast();
        assert_eq!((&forecast.weights[..], &forecast.automatic[..]), (&[9, 1][..], &[28, 3][..]));
        let (near, perfect) = (outlook(&forecast, "near"), outlook(&forecast, "perfect"));
        assert!((perfect.law_gb_s - near.law_gb_s - 24.4846).abs() < 1e-9);
        assert!(
            forecast.outlooks.iter().all(|o| o.network_gb_s.unwrap() <= o.law_gb_s * 1.000_001)
        );
        assert!(forecast.latency.is_some() && forecast.curve.is_some());
    }

    #[test]
    fn three_nodes_without_latencies() {
        let node = |gb: f64| format!("[[node]]\nname = 'n'\nbandwidth_mb_s = {gb}\n");
        let text = format!("about = 'x'\n{}{}{}", node(5e4), node(2e4), node(1e4));
        let forecast = NodesSpec::parse(&text).unwrap().forecast();
        assert_eq!(forecast.weights, [5, 2, 1]);
        assert_eq!(outlook(&forecast, "5:2:1").law_gb_s, 80.0);
        assert_eq!(outlook(&forecast, "even").law_gb_s, 30.0);
        assert!(forecast.outlooks.iter().all(|o| o.network_gb_s.is_none()));
        assert_eq!((forecast.latency, forecast.curve), (None, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (good, bad) in [
            ("bandwidth_mb_s = 208523.8", "bandwidth_mb_s = 0"),
            ("bandwidth_mb_s = 208523.8", "bandwidth_mb_s = inf"),
            ("idle_ns = 105", "idle_ns = -1"),
            ("idle_ns = 105", ""),
            ("lines_in_flight = 420", "lines_in_flight = 0"),
            ("lines_in_flight = 420", "lines_in_flight = 99999"),
            ("lines_in_flight = 420", "lines_in_fright = 420"),
            ("lines_in_flight = 420", "line_bytes = 0"),
            ("lines_in_flight = 420", "curve = { flat = 0.9, straight = 0.8, rise = 0, full = 2 }"),
        ] {
            assert!(TWO.contains(good), "{good}");
            assert!(NodesSpec::parse(&TWO.replacen(good, bad, 1)).is_err(), "{bad}");
        }
        let one = TWO.split("[[node]]").take(2).collect::<Vec<_>>().join("[[node]]");
        assert!(matches!(NodesSpec::parse(&one), Err(NodesError::Nodes(1))));
    }
}
