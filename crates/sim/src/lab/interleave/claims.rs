//! What is said to be gained, and in which sense that follows from the tables.

use serde::Serialize;

use super::published::{Claim, ClaimUnit};
use super::table::Table;

/// A claim beside what the rows give.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    /// of which table
    pub table: String,
    /// as it is said
    pub text: String,
    /// how many times as fast, from the slowest run to the fastest
    pub ratio: [f64; 2],
    /// in which sense the number follows; none if in none
    pub sense: Option<Sense>,
}

/// What a number may mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sense {
    /// how many times as fast
    Ratio,
    /// how much is added
    Gain,
    /// how much less time it takes
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

/// Reads a claim; none if its table has no such rows.
#[must_use]
pub fn read(claim: &Claim, tables: &[Table]) -> Option<Reading> {
    let table = tables.iter().find(|t| t.name == claim.table)?;
    let rows = |layout| table.published(claim.run.as_deref(), layout);
    let ratios: Vec<f64> = rows(&claim.layout)
        .zip(rows(&claim.over))
        .map(|(new, old)| table.speedup(new, old))
        .collect();
    let least = ratios.iter().copied().reduce(f64::min)?;
    let most = ratios.iter().copied().reduce(f64::max)?;
    // Senses in the order in which the unit suggests them, and what is lost by rounding.
    let (senses, one, rounding) = match claim.unit {
        ClaimUnit::Times => ([Sense::Ratio, Sense::Gain, Sense::Cut], 1.0, 0.01),
        ClaimUnit::Percent => ([Sense::Gain, Sense::Cut, Sense::Ratio], 100.0, 0.5),
    };
    let fits = |sense: &Sense| {
        let (from, to) = (sense.of(least) * one - rounding, sense.of(most) * one + rounding);
        (from..=to).contains(&claim.stated)
    };
    Some(Reading {
        table: claim.table.clone(),
        text: claim.text.clone(),
        ratio: [least, most],
        sense: senses.into_iter().find(fits),
    })
}
