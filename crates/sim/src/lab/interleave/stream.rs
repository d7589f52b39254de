//! STREAM: the bandwidth of each node is published, so every interleaved result can be predicted.

use super::curves::ratios;
use super::law::{as_shares, ratio, throughput};
use super::network::{Station, bandwidths};
use super::optimum::optimum;
use super::published::{StreamResult, StreamRun};
use super::table::{Misfit, Optimum, PublishedFigure, PublishedTable, Queued, Unit};

/// A prediction is good within this error.
const SMALL: f64 = 0.03;
/// Maximum number of lines in flight that is tried.
const LINES: u32 = 4096;

const DRAM: &str = "DRAM only";
const CXL: &str = "CXL only";
const EVEN: [f64; 2] = [1.0, 1.0];
/// The models.
pub const LAW: &str = "slowest node";
/// See [`LAW`].
pub const NETWORK: &str = "closed network";

impl StreamResult {
    /// The table with its predictions.
    #[must_use]
    pub fn table(&self) -> PublishedTable {
        let cells = (0..self.run.len()).flat_map(|i| self.cells(i)).collect();
        let optima = self.run.iter().enumerate().map(|(i, r)| {
            let best = r.global.max(r.targeted);
            let found = optimum(&r.name, Unit::Bandwidth, &[r.dram, r.cxl], r.dram, best);
            Optimum { queued: self.queued(i), ..found }
        });
        PublishedTable {
            name: "STREAM",
            about: self.about.clone(),
            unit: Unit::Bandwidth,
            cells,
            optima: optima.collect(),
            misfits: [self.misfit()].into_iter().chain(self.contradiction()).collect(),
        }
    }

    /// The layouts in which all memory of the process, and only the arrays, are interleaved by weight.
    #[must_use]
    pub fn weighted_layouts(&self) -> [String; 2] {
        let ratio = ratio(&self.weights);
        [format!("{ratio}, all memory"), format!("{ratio}, the arrays")]
    }

    /// The number of lines in flight that fits the results of the *other* runs with interleaved arrays.
    #[must_use]
    pub fn lines_without(&self, run: usize) -> u32 {
        self.lines_of(|i| i != run)
    }

    /// The number of lines in flight that fits the results of these runs with interleaved arrays.
    pub(super) fn lines_of(&self, is_used: impl Fn(usize) -> bool) -> u32 {
        let used = self.run.iter().enumerate().filter(|r| is_used(r.0)).map(|r| r.1);
        let errors = used.map(|r| {
            let by_lines = self.network(r, &as_shares(&self.weights), LINES);
            by_lines.into_iter().map(|b| (b / r.targeted - 1.0).powi(2)).collect::<Vec<f64>>()
        });
        let zero = vec![0.0; LINES as usize];
        let sums: Vec<f64> =
            errors.fold(zero, |sums, e| sums.iter().zip(e).map(|(s, e)| s + e).collect());
        let best = (1_u32..).zip(sums).min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(1, |b| b.0)
    }

    /// Bandwidth with 1, 2, ... lines in flight.
    #[must_use]
    pub fn network(&self, run: &StreamRun, weights: &[f64], lines: u32) -> Vec<f64> {
        let stations = Station::all(&[run.dram, run.cxl], &self.idle_ns, weights);
        bandwidths(&stations, self.line_bytes, lines)
    }

    /// The best ratio with the number of lines in flight of the other runs.
    fn queued(&self, i: usize) -> Option<Queued> {
        let (run, lines) = (&self.run[i], self.lines_without(i));
        let with =
            |ratio| Some(Queued { ratio, best: self.network(run, &[ratio, 1.0], lines).pop()? });
        ratios().filter_map(with).max_by(|a, b| a.best.total_cmp(&b.best))
    }

    fn cells(&self, i: usize) -> Vec<PublishedFigure> {
        let run = &self.run[i];
        let lines = self.lines_without(i);
        let [global, targeted] = self.weighted_layouts();
        let rows = format!("{DRAM} and {CXL} of the same run");
        let fitted = format!("{rows}, and \"{targeted}\" of the others");
        let predicted = |layout: &str, published, weights: &[f64]| {
            let law = throughput(&[run.dram, run.cxl], weights);
            let network = self.network(run, weights, lines).pop().unwrap_or(0.0);
            PublishedFigure::given(&run.name, layout, published)
                .with(LAW, law, &rows)
                .with(NETWORK, network, &fitted)
                .fitted(format!("{lines} lines in flight"))
        };
        let weights = as_shares(&self.weights);
        vec![
            PublishedFigure::given(&run.name, DRAM, run.dram),
            PublishedFigure::given(&run.name, CXL, run.cxl),
            predicted("1:1", run.even, &EVEN),
            predicted(&global, run.global, &weights),
            predicted(&targeted, run.targeted, &weights),
        ]
    }

    /// The runs whose two rows by weight differ too much for a prediction from weights and nodes alone. It is the
    /// same for both, so it cannot be within 3 % of both.
    fn contradiction(&self) -> Option<Misfit> {
        let [global, targeted] = self.weighted_layouts();
        let differs = |r: &&StreamRun| {
            let ratio = r.global / r.targeted;
            // The best prediction lies between the two, as far from one as from the other.
            ratio.max(1.0 / ratio) > (1.0 + SMALL) / (1.0 - SMALL)
        };
        let runs: Vec<&StreamRun> = self.run.iter().filter(differs).collect();
        let percent =
            |r: &&StreamRun| format!("{} {:+.1} %", r.name, (r.global / r.targeted - 1.0) * 100.0);
        let each: Vec<String> = runs.iter().map(percent).collect();
        (!runs.is_empty()).then(|| Misfit {
            cells: format!("\"{global}\" and \"{targeted}\" of the same run"),
            why: format!(
                "they have the same weights and nodes, and differ by more than a prediction within 3 % of both \
                 allows: {}",
                each.join(", ")
            ),
        })
    }

    /// The relative difference of the published results from the law, with all memory interleaved and with only
    /// the arrays interleaved.
    fn misfit(&self) -> Misfit {
        let [global, targeted] = self.weighted_layouts();
        let of_law = |figure: fn(&StreamRun) -> f64| {
            let part =
                |r: &StreamRun| figure(r) / throughput(&[r.dram, r.cxl], &as_shares(&self.weights));
            let parts = || self.run.iter().map(part);
            (parts().fold(f64::INFINITY, f64::min), parts().fold(0.0, f64::max))
        };
        let (all, arrays) = (of_law(|r| r.global), of_law(|r| r.targeted));
        let why = format!(
            "{:.2} to {:.2} of the law, run by run, where \"{targeted}\" is {:.2} to {:.2} of it: weights \
             and nodes are the same, and what differs, where the rest of the process lies, no model here \
             has",
            all.0, all.1, arrays.0, arrays.1
        );
        Misfit { cells: format!("\"{global}\""), why }
    }
}
