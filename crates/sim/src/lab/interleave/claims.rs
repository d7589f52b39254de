//! Claimed gains, and the sense in which each follows from the tables.

use serde::Serialize;

use super::published::{ClaimUnit, PublishedGain};
use super::table::PublishedTable;

/// A claim, compared with the rows of its table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckedClaim {
    /// name of the table
    pub table: String,
    /// the claim as published
    pub text: String,
    /// speedup, from the slowest run to the fastest
    pub ratio: [f64; 2],
    /// the sense in which the number follows; `None`: in no sense
    pub sense: Option<Sense>,
}

/// The meaning of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sense {
    /// speedup: ratio of the speeds
    Ratio,
    /// gain: ratio minus 1
    Gain,
    /// reduction of the time
    Cut,
}

impl Sense {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sense::Ratio => "a ratio",
            Sense::Gain => "what is added",
            Sense::Cut => "a cut in time",
        }
    }

    fn of(self, ratio: f64) -> f64 {
        match self {
            Sense::Ratio => ratio,
            Sense::Gain => ratio - 1.0,
            Sense::Cut => 1.0 - 1.0 / ratio,
        }
    }
}

/// Evaluates a claim; `None` if its table has no such rows.
#[must_use]
pub fn read(claim: &PublishedGain, tables: &[PublishedTable]) -> Option<CheckedClaim> {
    let table = tables.iter().find(|t| t.name == claim.table)?;
    let rows = |layout| table.published(claim.run.as_deref(), layout);
    let ratios: Vec<f64> = rows(&claim.layout)
        .zip(rows(&claim.over))
        .map(|(new, old)| table.speedup(new, old))
        .collect();
    let least = ratios.iter().copied().reduce(f64::min)?;
    let most = ratios.iter().copied().reduce(f64::max)?;
    // The senses in the order that the unit suggests, and the tolerance for rounding.
    let (senses, one, rounding) = match claim.unit {
        ClaimUnit::Times => ([Sense::Ratio, Sense::Gain, Sense::Cut], 1.0, 0.01),
        ClaimUnit::Percent => ([Sense::Gain, Sense::Cut, Sense::Ratio], 100.0, 0.5),
    };
    let fits = |sense: &Sense| {
        let (from, to) = (sense.of(least) * one - rounding, sense.of(most) * one + rounding);
        (from..=to).contains(&claim.stated)
    };
    Some(CheckedClaim {
        table: claim.table.clone(),
        text: claim.text.clone(),
        ratio: [least, most],
        sense: senses.into_iter().find(fits),
    })
}
