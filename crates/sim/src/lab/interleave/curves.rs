//! Throughput over weights for pictures, in percent of DRAM alone.

use serde::Serialize;

use super::law::{perfect, throughput};
use super::published::{Mlc, Published, StreamResult, Xsbench};

/// Ratios from 1:2 to 64:1. The second number is that of points per doubling.
const DOUBLINGS: i32 = 6;
const STEPS: i32 = 16;

/// Throughput over the weight of DRAM, where each expander has the weight 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WeightCurve {
    /// the table
    pub table: &'static str,
    /// the run
    pub run: String,
    /// the smallest ratio first
    pub points: Vec<WeightPoint>,
    /// by the law of the slowest node
    pub optimum: CurveMark,
    /// published results
    pub published: Vec<CurveMark>,
}

/// Throughput in percent of DRAM alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WeightPoint {
    /// DRAM's weight
    pub ratio: f64,
    /// by the law of the slowest node
    pub law_percent: f64,
    /// by the closed network, where its parameters are known
    pub network_percent: Option<f64>,
}

/// A result, with its ratio if that is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurveMark {
    /// the layout
    pub layout: String,
    /// DRAM's weight
    pub ratio: Option<f64>,
    /// throughput in percent of DRAM alone
    pub percent: f64,
}

/// Ratios, evenly distributed over doublings.
pub(super) fn ratios() -> impl Iterator<Item = f64> {
    (-STEPS..=DOUBLINGS * STEPS).map(|i| 2_f64.powf(f64::from(i) / f64::from(STEPS)))
}

fn mark(layout: &str, ratio: Option<f64>, percent: f64) -> CurveMark {
    CurveMark { layout: layout.to_owned(), ratio, percent }
}

/// The curve for nodes of which all except the first are equal. `network` returns the throughput with given
/// weights.
pub(super) fn curve(
    (table, run): (&'static str, &str),
    nodes: &[f64],
    network: impl Fn(&[f64]) -> Option<f64>,
    published: Vec<CurveMark>,
) -> WeightCurve {
    let (dram, far) = (nodes[0], nodes[nodes.len() - 1]);
    let percent = |throughput: f64| 100.0 * throughput / dram;
    let point = |ratio: f64| {
        let weights: Vec<f64> =
            (0..nodes.len()).map(|i| if i == 0 { ratio } else { 1.0 }).collect();
        WeightPoint {
            ratio,
            law_percent: percent(throughput(nodes, &weights)),
            network_percent: network(&weights).map(percent),
        }
    };
    let best = dram / far;
    let name = format!("optimum, {best:.2}{}", ":1".repeat(nodes.len() - 1));
    // The point at which the curve bends is one of its points.
    let mut points: Vec<WeightPoint> = ratios().chain([best]).map(point).collect();
    points.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    WeightCurve {
        table,
        run: run.to_owned(),
        points,
        optimum: mark(&name, Some(best), percent(perfect(nodes))),
        published,
    }
}

impl Published {
    /// One curve for each table.
    #[must_use]
    pub fn curves(&self) -> Vec<WeightCurve> {
        let all = [self.stream.curve(), Some(self.xsbench.curve()), self.mlc.curve()];
        all.into_iter().flatten().collect()
    }
}

impl StreamResult {
    /// The curve of the first run.
    fn curve(&self) -> Option<WeightCurve> {
        let run = self.run.first()?;
        let lines = self.lines_without(0);
        let [global, targeted] = self.weighted_layouts();
        let ratio = f64::from(self.weights[0]) / f64::from(self.weights[1]);
        let of_dram = |b: f64| 100.0 * b / run.dram;
        let marks = vec![
            mark("1:1", Some(1.0), of_dram(run.even)),
            mark(&targeted, Some(ratio), of_dram(run.targeted)),
            mark(&global, Some(ratio), of_dram(run.global)),
        ];
        let network = |weights: &[f64]| self.network(run, weights, lines).pop();
        Some(curve(("STREAM", &run.name), &[run.dram, run.cxl], network, marks))
    }
}

impl Xsbench {
    fn curve(&self) -> WeightCurve {
        let marks = vec![
            mark("1:1", Some(1.0), 100.0 * self.dram / self.even),
            mark("by weights", None, 100.0 * self.dram / self.weighted),
        ];
        curve(("XSBench", "lookups"), &self.nodes(), |_| None, marks)
    }
}

impl Mlc {
    /// The curve of the first run, with the first number of expanders.
    fn curve(&self) -> Option<WeightCurve> {
        let (run, &k) = self.run.first().zip(self.expanders.first())?;
        let marks = vec![
            mark("1:1", Some(1.0), 100.0 * run.even / run.dram),
            mark("by weights", None, 100.0 * run.weighted / run.dram),
        ];
        let name = format!("{}, {k} expanders", run.name);
        Some(curve(("MLC", &name), &run.nodes(k), |_| None, marks))
    }
}
