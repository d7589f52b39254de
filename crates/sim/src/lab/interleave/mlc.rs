//! MLC. The published data contains neither the bandwidth of an expander nor the number of expanders. The
//! slowest expander limits plain interleaving, so that row gives the bandwidth of each; so does the bandwidth
//! that weights add to DRAM.

use std::fmt::Write;

use super::optimum::optimum;
use super::published::{Mlc, MlcRun};
use super::table::{Misfit, PublishedFigure, PublishedTable, Unit};

const ANY: &str = "ever more";

impl Mlc {
    /// The table with its predictions.
    #[must_use]
    pub fn table(&self) -> PublishedTable {
        PublishedTable {
            name: "MLC",
            about: self.about.clone(),
            unit: Unit::Bandwidth,
            cells: self.run.iter().flat_map(|r| self.cells(r)).collect(),
            optima: self.run.iter().flat_map(|r| self.optima(r)).collect(),
            misfits: self.run.iter().map(|r| self.misfit(r)).collect(),
        }
    }

    fn cells(&self, run: &MlcRun) -> Vec<PublishedFigure> {
        let mut even = PublishedFigure::given(&run.name, "1:1", run.even);
        let mut weighted = PublishedFigure::given(&run.name, "by weights", run.weighted);
        for &k in &self.expanders {
            let model = format!("{k} expanders");
            even = even.with(
                &model,
                run.even_from_weighted(k),
                "DRAM only and by weights, by the law of the slowest node, if weights are perfect",
            );
            weighted = weighted.with(
                &model,
                run.weighted_from_even(k),
                "DRAM only and 1:1, by the law of the slowest node, with perfect weights",
            );
        }
        let even = even.with(ANY, run.added(), "DRAM only and by weights, as a bound");
        let weighted = weighted.with(ANY, run.dram + run.even, "DRAM only and 1:1, as a bound");
        vec![PublishedFigure::given(&run.name, "DRAM only", run.dram), even, weighted]
    }

    /// The optima, from the row of plain interleaving.
    fn optima(&self, run: &MlcRun) -> impl Iterator<Item = super::Optimum> {
        self.expanders.iter().map(|&k| {
            let nodes: Vec<f64> = run.nodes(k);
            let name = format!("{}, {k} expanders", run.name);
            optimum(&name, Unit::Bandwidth, &nodes, run.dram, run.weighted)
        })
    }

    fn misfit(&self, run: &MlcRun) -> Misfit {
        let mut why = format!(
            "weights add {:.2} to DRAM, all from the expanders; by the row 1:1 these give less than {:.2} \
             together, ",
            run.added(),
            run.even
        );
        let _ = match run.least_expanders() {
            None => write!(why, "however many they are: one row contradicts the other"),
            Some(k) => write!(why, "and as much as that only if they are {k} or more"),
        };
        why += ". With";
        for (i, &k) in self.expanders.iter().enumerate() {
            let part = run.expander_in_even(k) / (run.added() / f64::from(k));
            let _ = write!(why, "{} {k} of them", if i == 0 { "" } else { "," });
            let _ = write!(why, " each would have to lose {:.0} %", 100.0 * (1.0 - part));
        }
        why += " of what it can when plain interleave overloads it";
        Misfit { cells: format!("{}: \"1:1\" and \"by weights\" together", run.name), why }
    }
}

impl MlcRun {
    /// The bandwidth that weights add to DRAM.
    fn added(&self) -> f64 {
        self.weighted - self.dram
    }

    /// The bandwidth of one of `k` expanders, which limit plain interleaving.
    fn expander_in_even(&self, k: u32) -> f64 {
        self.even / f64::from(k + 1)
    }

    /// DRAM and `k` expanders, from the row of plain interleaving.
    pub(super) fn nodes(&self, k: u32) -> Vec<f64> {
        let far = std::iter::repeat_n(self.expander_in_even(k), k as usize);
        std::iter::once(self.dram).chain(far).collect()
    }

    fn weighted_from_even(&self, k: u32) -> f64 {
        self.dram + f64::from(k) * self.expander_in_even(k)
    }

    fn even_from_weighted(&self, k: u32) -> f64 {
        let expander = self.added() / f64::from(k);
        f64::from(k + 1) * expander.min(self.dram)
    }

    /// The minimum number of expanders with which both rows hold; `None` if there is none.
    fn least_expanders(&self) -> Option<u64> {
        let left = self.even - self.added();
        (left > 0.0).then(|| (self.added() / left).ceil() as u64)
    }
}
