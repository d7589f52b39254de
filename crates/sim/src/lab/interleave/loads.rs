//! Latency by load, for two nodes: the loads at which interleaving is worthwhile.

use serde::Serialize;

use super::latency::Pair;

/// Loads in percent of the near node's bandwidth: those that are computed, and those that are shown.
const LOADS: std::ops::RangeInclusive<u32> = 1..=125;
const SHOWN_LOADS: [u32; 8] = [20, 40, 60, 80, 90, 100, 105, 110];

/// Latency of accesses by load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loads {
    /// names of the nodes
    pub of: String,
    /// latency without other load, near and far
    pub idle_ns: [f64; 2],
    /// the load above which the far node reduces the latency, in percent of the near node's bandwidth
    pub threshold_percent: f64,
    /// in ascending order of load
    pub points: Vec<LoadPoint>,
}

/// Mean latencies at a load; `None` if a node would exceed its bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadPoint {
    /// load in percent of the near node's bandwidth
    pub load_percent: u32,
    /// all memory on the near node
    pub near_ns: Option<f64>,
    /// half and half
    pub even_ns: Option<f64>,
    /// in proportion to bandwidth
    pub perfect_ns: Option<f64>,
    /// with the share that minimises the latency
    pub best_ns: Option<f64>,
    /// that share of the far node
    pub best_far_percent: Option<f64>,
}

impl Loads {
    /// Some of the points.
    pub(super) fn shown(&self) -> impl Iterator<Item = &LoadPoint> {
        self.points.iter().filter(|p| SHOWN_LOADS.contains(&p.load_percent))
    }
}

/// Latency of two nodes over load.
#[must_use]
pub fn loads(of: &str, pair: &Pair) -> Loads {
    let near = pair.bandwidths[0];
    Loads {
        of: of.to_owned(),
        idle_ns: pair.idle_ns,
        threshold_percent: 100.0 * pair.threshold() / near,
        points: LOADS.map(|load| point(pair, load)).collect(),
    }
}

fn point(pair: &Pair, load_percent: u32) -> LoadPoint {
    let [near, far] = pair.bandwidths;
    let bandwidth = near * f64::from(load_percent) / 100.0;
    let best = pair.best(bandwidth);
    LoadPoint {
        load_percent,
        near_ns: pair.mean(bandwidth, 0.0),
        even_ns: pair.mean(bandwidth, 0.5),
        perfect_ns: pair.mean(bandwidth, far / (near + far)),
        best_ns: best.and_then(|far| pair.mean(bandwidth, far)),
        best_far_percent: best.map(|far| 100.0 * far),
    }
}
