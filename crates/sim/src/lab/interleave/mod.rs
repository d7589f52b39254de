//! Weighted interleaving: the bandwidth that weights give, and the published results.
//!
//! `docs/lab/interleave.md` compares the two.

mod claims;
mod curves;
mod fit;
mod forecast;
pub mod latency;
pub mod law;
mod loads;
mod mlc;
pub mod network;
mod nodes;
mod optimum;
mod published;
mod stream;
mod table;
mod text;
mod xsbench;

use serde::Serialize;

pub use claims::{CheckedClaim, Sense};
pub use curves::{CurveMark, WeightCurve, WeightPoint};
pub use fit::{Fit, HeldOut};
pub use forecast::{Forecast, ForecastNode, Outlook};
pub use loads::{LoadPoint, Loads};
pub use nodes::{BandwidthNode, NodesError, NodesSpec};
pub use published::{Published, PublishedError};
pub use stream::{LAW, NETWORK};
pub use table::{Misfit, Optimum, Prediction, PublishedFigure, PublishedTable, Queued, Unit};

/// The published results.
pub const PUBLISHED_TOML: &str = include_str!("../../../lab/interleave.toml");

/// The published results, with predictions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interleave {
    /// of this form
    pub schema_version: u32,
    /// where it was published
    pub published: String,
    /// one for each benchmark
    pub tables: Vec<PublishedTable>,
    /// how many cells each model predicts within 3, 5 and 10 %
    pub fits: Vec<Fit>,
    /// predictions of one half of STREAM's runs from the other half
    pub held_out: Vec<HeldOut>,
    /// claimed gains
    pub claims: Vec<CheckedClaim>,
    /// the loads at which interleaving is worthwhile
    pub latency: Option<Loads>,
    /// throughput over weights
    pub curves: Vec<WeightCurve>,
}

/// Predicts the published results.
#[must_use]
pub fn predict(published: &Published) -> Interleave {
    let tables = vec![published.mlc.table(), published.stream.table(), published.xsbench.table()];
    let claims = published.claim.iter().filter_map(|c| claims::read(c, &tables)).collect();
    Interleave {
        schema_version: 1,
        published: published.about.clone(),
        fits: tables.iter().flat_map(fit::fits).collect(),
        held_out: published.stream.held_out(),
        tables,
        claims,
        latency: published.loads(),
        curves: published.curves(),
    }
}

impl Published {
    /// Figures of the machine of STREAM, from its first run.
    fn loads(&self) -> Option<Loads> {
        let run = self.stream.run.first()?;
        let pair = latency::Pair {
            bandwidths: [run.dram, run.cxl],
            idle_ns: self.stream.idle_ns,
            curve: self.curve,
        };
        Some(loads::loads(&format!("STREAM {}", run.name), &pair))
    }
}

#[cfg(test)]
mod tests;
