//! How right a record is that a guest has brought out.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use isotherm_record::{Event, Reader};
use isotherm_sim::{Accuracy, AccuracyBuilder, GroundTruth};
use serde::Deserialize;

/// A record, its truth, and how right it is to be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// file in `/out`, of `isotherm record`
    pub record: String,
    /// file in `/out`, of `isotherm lab workload --truth`
    pub truth: String,
    /// series on which this is so; none: all of the scenario
    #[serde(default)]
    pub kernels: Vec<String>,
    /// over all snapshots
    pub least: Least,
}

/// Shares that must be reached, of 0 to 1. Of what nothing was called, all is right.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Least {
    /// of what was called hot: so much is
    pub hot_precision: f64,
    /// of what is hot: so much was called so
    pub hot_recall: f64,
    /// of what was called cold: so much is
    pub cold_precision: f64,
    /// of what is cold: so much was called so
    pub cold_recall: f64,
}

impl Expected {
    /// Whether it is of kernels of this series.
    #[must_use]
    pub fn is_of(&self, series: &str) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|s| s == series)
    }

    /// The figures of what lies in `out`, and what of them is not as expected.
    ///
    /// # Errors
    /// If the record or its truth cannot be read.
    pub fn judge(&self, out: &Path) -> Result<(String, Vec<String>)> {
        let row = figures(&out.join(&self.record), &out.join(&self.truth))?;
        Ok((told(&row), self.least.missed(&row)))
    }
}

impl Least {
    fn missed(&self, row: &Accuracy) -> Vec<String> {
        let shares = [
            ("precision of hot memory", row.hot.precision.run.or(Some(1.0)), self.hot_precision),
            ("recall of hot memory", row.hot.recall.run, self.hot_recall),
            ("precision of cold memory", row.cold.precision.run.or(Some(1.0)), self.cold_precision),
            ("recall of cold memory", row.cold.recall.run, self.cold_recall),
        ];
        let low = shares.into_iter().filter(|(_, is, least)| is.unwrap_or(0.0) < *least);
        low.map(|(what, is, least)| format!("{what}: {}, least {least}", share(is))).collect()
    }
}

/// The figures of a record of one workload.
///
/// # Errors
/// If the record or its truth cannot be read.
pub fn figures(record: &Path, truth: &Path) -> Result<Accuracy> {
    let file = File::open(truth).with_context(|| format!("cannot read {}", truth.display()))?;
    let truth = GroundTruth::read(file)?;
    let mut builder = None;
    for event in Reader::open(record)? {
        match (event?, &mut builder) {
            (Event::Target(t), None) => builder = Some(AccuracyBuilder::new(&truth, t.id)),
            (Event::Snapshot(s), Some(builder)) => builder.push(&s),
            _ => {}
        }
    }
    let builder = builder.with_context(|| format!("{} has no target", record.display()))?;
    Ok(builder.finish())
}

/// The figures in a line.
fn told(row: &Accuracy) -> String {
    format!(
        "{} snapshots; hot: precision {}, recall {}; cold: precision {}, recall {}; {:.0} regions",
        row.snapshots,
        share(row.hot.precision.run),
        share(row.hot.recall.run),
        share(row.cold.precision.run),
        share(row.cold.recall.run),
        row.regions,
    )
}

fn share(is: Option<f64>) -> String {
    is.map_or("-".to_owned(), |s| format!("{s:.3}"))
}
