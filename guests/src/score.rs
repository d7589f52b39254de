//! Accuracy of a record that a guest has written.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use isotherm_record::{Event, Reader};
use isotherm_sim::{Accuracy, AccuracyBuilder, GroundTruth};
use serde::Deserialize;

/// A record, its ground truth, and the required accuracy.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequiredAccuracy {
    /// file in `/out`, written by `isotherm record`
    pub record: String,
    /// file in `/out`, written by `isotherm lab workload --truth`
    pub truth: String,
    /// series to which this applies; empty: all of the scenario
    #[serde(default)]
    pub kernels: Vec<String>,
    /// minimum over all snapshots
    pub least: MinimumShares,
}

/// Minimum shares, from 0 to 1. If no memory was reported, all of it counts as right.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MinimumShares {
    /// share of the memory reported as hot that is hot
    pub hot_precision: f64,
    /// share of the hot memory that was reported as hot
    pub hot_recall: f64,
    /// share of the memory reported as cold that is cold
    pub cold_precision: f64,
    /// share of the cold memory that was reported as cold
    pub cold_recall: f64,
}

impl RequiredAccuracy {
    /// Whether it applies to kernels of this series.
    pub fn is_of(&self, series: &str) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|s| s == series)
    }

    /// The figures of the files in `out`, and those that miss the requirement.
    pub fn judge(&self, out: &Path) -> Result<(String, Vec<String>)> {
        let row = figures(&out.join(&self.record), &out.join(&self.truth))?;
        Ok((summary(&row), self.least.missed(&row)))
    }
}

impl MinimumShares {
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
fn summary(row: &Accuracy) -> String {
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
