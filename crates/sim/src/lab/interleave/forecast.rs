//! The effect of weights on the nodes of a machine.

use serde::Serialize;

use super::curves::{WeightCurve, curve};
use super::latency::Pair;
use super::law::{as_shares, automatic_weights, best_weights, ratio, throughput};
use super::loads::{Loads, loads};
use super::network::{Station, bandwidths};
use super::nodes::{BandwidthNode, NodesSpec};

impl NodesSpec {
    /// Predicts the effect of weights on this machine.
    #[must_use]
    pub fn forecast(&self) -> Forecast {
        let nodes = self.gb_s();
        let named = |name: &str, weights: Vec<f64>| self.outlook(name, &weights);
        let near = nodes.iter().enumerate().map(|n| if n.0 == 0 { 1.0 } else { 0.0 }).collect();
        let (best, kernels) = (best_weights(&nodes), automatic_weights(&nodes));
        Forecast {
            schema_version: 1,
            machine: self.about.clone(),
            nodes: self.node.iter().map(BandwidthNode::to_forecast).collect(),
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

    fn network(&self, weights: &[f64]) -> Option<f64> {
        let (idle, lines) = (self.idle_ns()?, self.lines_in_flight?);
        let stations = Station::all(&self.gb_s(), &idle, weights);
        bandwidths(&stations, self.line_bytes, lines).pop()
    }

    /// The two nodes, if there are two and their latencies are given.
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

impl BandwidthNode {
    fn to_forecast(&self) -> ForecastNode {
        ForecastNode {
            name: self.name.clone(),
            bandwidth_mb_s: self.bandwidth_mb_s,
            idle_ns: self.idle_ns,
        }
    }
}

/// The effect of weights on a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// version of this form
    pub schema_version: u32,
    /// description of the machine
    pub machine: String,
    /// the nodes as given
    pub nodes: Vec<ForecastNode>,
    /// integer weights of a short round, within one percent of the best of any round of that length
    pub weights: Vec<u8>,
    /// the weights that the kernel would compute
    pub automatic: Vec<u8>,
    /// one for each layout
    pub outlooks: Vec<Outlook>,
    /// if there are two nodes with latencies
    pub latency: Option<Loads>,
    /// if there are two nodes
    pub curve: Option<WeightCurve>,
}

/// A node as given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForecastNode {
    /// its name
    pub name: String,
    /// its bandwidth alone, in 10^6 bytes a second
    pub bandwidth_mb_s: f64,
    /// latency of an access without other load
    pub idle_ns: Option<f64>,
}

/// The bandwidth of a layout, in 10^9 bytes a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// placement of memory
    pub layout: String,
    /// by the law of the slowest node
    pub law_gb_s: f64,
    /// by the closed network, if lines in flight are given
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
}
