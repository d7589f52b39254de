//! XSBench: run times. The bandwidth of the expander is not published, but it limits plain interleaving. The
//! best weights follow from that, unless they are the weights that were used.

use super::law::{as_shares, automatic_weights, best_weights, perfect, ratio, throughput};
use super::optimum::optimum;
use super::published::Xsbench;
use super::table::{Misfit, PublishedFigure, PublishedTable, Unit};

const RUN: &str = "170,000,000 lookups";

impl Xsbench {
    /// The table with its predictions.
    #[must_use]
    pub fn table(&self) -> PublishedTable {
        let nodes = self.nodes();
        let from = "DRAM only and 1:1, which the expander holds up, by the law of the slowest node";
        let given = |layout, seconds| PublishedFigure::given(RUN, layout, seconds);
        let mut weighted =
            given("by weights", self.weighted).with("perfect weights", 1.0 / perfect(&nodes), from);
        let scaled = nodes.map(|n| n * 1e3);
        let kernels = automatic_weights(&scaled);
        for (whose, weights) in [("", best_weights(&nodes)), (" (the kernel's)", kernels)] {
            let seconds = 1.0 / throughput(&nodes, &as_shares(&weights));
            weighted = weighted.with(&format!("{}{whose}", ratio(&weights)), seconds, from);
        }
        PublishedTable {
            name: "XSBench",
            about: self.about.clone(),
            unit: Unit::Time,
            cells: vec![given("DRAM only", self.dram), given("1:1", self.even), weighted],
            optima: vec![optimum(RUN, Unit::Time, &nodes, self.dram, self.weighted)],
            misfits: vec![self.misfit()],
        }
    }

    /// Bandwidths in runs per second.
    pub(super) fn nodes(&self) -> [f64; 2] {
        [1.0 / self.dram, 0.5 / self.even]
    }

    /// Weights that by the law of the slowest node would give the published result, with either the expander or
    /// DRAM as the limit.
    fn misfit(&self) -> Misfit {
        let [dram, cxl] = self.nodes();
        let (far, near) = (self.weighted * cxl, self.weighted * dram);
        let why = format!(
            "the weights are not stated. By the law {:.2} s are those of {:.2}:1, or of {:.2}:1; \
             what lies between is faster",
            self.weighted,
            (1.0 - far) / far,
            near / (1.0 - near)
        );
        Misfit { cells: "\"by weights\"".to_owned(), why }
    }
}
