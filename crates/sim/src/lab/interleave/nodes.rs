//! The nodes of a user's machine, from a file.

use serde::Deserialize;

use super::latency::Curve;
use super::network::MAX_LINES_IN_FLIGHT;

/// Maximum number of nodes.
const MAX_NODES: usize = 64;

/// A machine, in a file like `crates/sim/lab/two-nodes.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodesSpec {
    /// a description, in one line
    pub about: String,
    /// the near one first
    pub node: Vec<BandwidthNode>,
    /// number of accesses in flight; without it the model has no queues
    pub lines_in_flight: Option<u32>,
    /// bytes of an access
    #[serde(default = "line")]
    pub line_bytes: u32,
    /// latency over load
    #[serde(default)]
    pub curve: Curve,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BandwidthNode {
    /// name of the node
    pub name: String,
    /// its bandwidth alone, in 10^6 bytes a second
    pub bandwidth_mb_s: f64,
    /// latency of an access without other load
    pub idle_ns: Option<f64>,
}

fn line() -> u32 {
    64
}

/// The reason for which a file does not describe a machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodesError {
    /// not TOML, or an unknown key
    #[error("the machine cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// the number of nodes
    #[error("there are {0} nodes: choose 2 to {MAX_NODES}")]
    Nodes(usize),
    /// a node
    #[error(
        "node {0} is out of range: choose a bandwidth of 1 to 10^9 MB/s, and an idle latency of 1 to 10^9 ns"
    )]
    Node(String),
    /// the number or size of accesses
    #[error(
        "choose 1 to {MAX_LINES_IN_FLIGHT} lines in flight, of 1 to {MAX_LINES_IN_FLIGHT} bytes"
    )]
    Lines,
    /// a missing idle latency
    #[error(
        "lines in flight require an idle latency of each node: give it, or leave out the lines"
    )]
    Idle,
    /// the curve
    #[error(
        "the curve is out of range: it requires 0 < flat < straight < 1, rise from 0 on, full from 1 + rise on"
    )]
    Curve,
}

impl NodesSpec {
    /// Parses a file.
    ///
    /// # Errors
    /// If it is not TOML, or a value is invalid.
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
        let is_sound = |n: &&BandwidthNode| sound(n.bandwidth_mb_s) && n.idle_ns.is_none_or(sound);
        if let Some(bad) = self.node.iter().find(|n| !is_sound(n)) {
            return Err(NodesError::Node(bad.name.clone()));
        }
        let lines = self.lines_in_flight.unwrap_or(1);
        if [lines, self.line_bytes].iter().any(|n| !(1..=MAX_LINES_IN_FLIGHT).contains(n)) {
            return Err(NodesError::Lines);
        }
        if self.lines_in_flight.is_some() && self.idle_ns().is_none() {
            return Err(NodesError::Idle);
        }
        if self.curve.is_plausible() { Ok(()) } else { Err(NodesError::Curve) }
    }

    /// The bandwidths in 10^9 bytes a second.
    pub(super) fn gb_s(&self) -> Vec<f64> {
        self.node.iter().map(|n| n.bandwidth_mb_s / 1e3).collect()
    }

    /// The idle latencies, if all nodes have one.
    pub(super) fn idle_ns(&self) -> Option<Vec<f64>> {
        self.node.iter().map(|n| n.idle_ns).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = include_str!("../../../lab/two-nodes.toml");

    #[test]
    fn invalid_values_are_refused() {
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
