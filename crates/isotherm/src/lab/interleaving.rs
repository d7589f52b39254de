//! Pictures of interleaving: throughput over weights, latency over load.

use isotherm_report::{ChartLine, Lines, Plot};
use isotherm_sim::lab::interleave::{CurveMark, LAW, LoadPoint, Loads, NETWORK, WeightCurve};

/// Weights of DRAM that have a label on the axis.
const RATIOS: [u32; 9] = [1, 2, 3, 4, 6, 9, 16, 32, 64];

/// A plot for each machine, with the optimum and the published figures.
#[must_use]
pub fn throughput(curves: &[WeightCurve]) -> Lines {
    Lines {
        title: "Throughput over weights".into(),
        note: "Too little weight for the near node overloads the far one; too much leaves the far one idle. \
               The optimum is the ratio of bandwidths."
            .into(),
        x: "weight of the near node, where that of each far one is 1".into(),
        y: "throughput, percent of the near node alone".into(),
        marks: RATIOS.iter().map(|&r| (f64::from(r).log2(), format!("{r}:1"))).collect(),
        plots: curves.iter().map(plot).collect(),
        basis: "Models: the law of the slowest node, and a closed network of queues. Dots but the optimum: \
                as published."
            .into(),
    }
}

fn plot(curve: &WeightCurve) -> Plot {
    let points = |value: &dyn Fn(usize) -> Option<f64>| -> Vec<(f64, f64)> {
        let each = curve.points.iter().enumerate();
        each.filter_map(|(i, p)| Some((p.ratio.log2(), value(i)?))).collect()
    };
    let flat = |percent: f64| points(&|_| Some(percent));
    let line = |name: &str, points| ChartLine { name: name.into(), points };
    let mut lines = vec![
        line(LAW, points(&|i| Some(curve.points[i].law_percent))),
        line("near node only", flat(100.0)),
        line(NETWORK, points(&|i| curve.points[i].network_percent)),
    ];
    for CurveMark { layout, percent, .. } in curve.published.iter().filter(|m| m.ratio.is_none()) {
        lines.push(line(&format!("published, {layout} that are not stated"), flat(*percent)));
    }
    lines.retain(|l| !l.points.is_empty());
    let marks = std::iter::once(&curve.optimum).chain(&curve.published);
    let dots = marks.filter_map(|m| Some(line(&m.layout, vec![(m.ratio?.log2(), m.percent)])));
    lines.extend(dots);
    Plot { name: format!("{}, {}", curve.table, curve.run), lines }
}

/// Mean latency over load, by where memory lies.
#[must_use]
pub fn latency(loads: &Loads) -> Lines {
    let line = |name: &str, value: fn(&LoadPoint) -> Option<f64>| {
        let points = loads.points.iter();
        let points = points.filter_map(|p| Some((f64::from(p.load_percent), value(p)?)));
        ChartLine { name: name.into(), points: points.collect() }
    };
    let lines = vec![
        line("best", |p| p.best_ns),
        line("near node only", |p| p.near_ns),
        line("by bandwidth", |p| p.perfect_ns),
        line("1:1", |p| p.even_ns),
    ];
    Lines {
        title: "Mean latency over load".into(),
        note: format!(
            "As long as the near node has bandwidth left, memory there is fastest; from {:.0} % \
             of it on the far node helps. A line ends where a node reaches its bandwidth.",
            loads.threshold_percent
        ),
        x: "load, percent of what the near node can".into(),
        y: "mean latency, ns".into(),
        marks: (0..=12).map(|i| (f64::from(i) * 10.0, format!("{}", i * 10))).collect(),
        plots: vec![Plot { name: loads.of.clone(), lines }],
        basis: format!("Idle latencies of {} and {} ns.", loads.idle_ns[0], loads.idle_ns[1]),
    }
}
