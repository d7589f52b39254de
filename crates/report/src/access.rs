//! The regions of one snapshot, filtered and sorted.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, HeatBytes, Snapshot, TargetView};
use serde::Serialize;
use wildmatch::WildMatch;

use crate::basis::{Basis, BasisTally, gaps};
use crate::filter::{FilterError, Gate, Options};
use crate::names::label_of;
use crate::row::{RegionRow, mappings};
use crate::units;

/// Which snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pick {
    /// the last one in the selected time
    #[default]
    Last,
    /// the one whose interval contains this time since the start of the recording
    At(Duration),
    /// the one with this number
    Number(u64),
}

/// The sort key of regions: addresses ascend, all other keys descend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SortBy {
    /// target, then address
    #[default]
    Address,
    /// size
    Size,
    /// rate
    Rate,
    /// age
    Age,
    /// hot regions by rate, then warm ones, then cold ones, the youngest first
    Heat,
}

impl SortBy {
    /// All keys, with their names.
    pub const ALL: [(SortBy, &'static str); 5] = [
        (SortBy::Address, "addr"),
        (SortBy::Size, "size"),
        (SortBy::Rate, "rate"),
        (SortBy::Age, "age"),
        (SortBy::Heat, "heat"),
    ];
}

/// Which regions to report, and in which order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    /// which snapshot
    pub pick: Pick,
    /// sorted by
    pub sort: SortBy,
    /// reverse the order
    pub reverse: bool,
    /// of these sizes in bytes
    pub size: Option<Range<u64>>,
    /// of these rates in Hz
    pub rate: Option<Range<f64>>,
    /// of these ages
    pub age: Option<Range<Duration>>,
    /// In a mapping whose name contains this text, or, if it has `*` or `?`, matches it as a whole.
    pub mapping: Option<String>,
}

/// The regions of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccessReport {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// the part of the record that was used; memory is that of the selected targets and addresses
    #[serde(flatten)]
    pub basis: Basis,
    /// number of the snapshot
    pub seq: u64,
    /// number of regions in the selected targets and addresses; `regions` has those that match the choice
    pub nr_regions: u64,
    /// names of the targets
    pub targets: Vec<TargetName>,
    /// the regions that match the choice, sorted
    pub regions: Vec<RegionRow>,
}

/// The label of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetName {
    /// its number
    pub target: u32,
    /// label
    pub label: String,
    /// mapped bytes that no region covers
    pub left_out_bytes: u64,
}

/// Why there is no snapshot to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// nothing in the selected time or at the selected addresses
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// no such snapshot
    #[error("there is no snapshot {asked} in the chosen time: choose one from {} to {}", .there.0, .there.1)]
    Number {
        /// the number that was asked for
        asked: u64,
        /// the first and the last one
        there: (u64, u64),
    },
    /// no snapshot at this time
    #[error(
        "no snapshot was going on at {}: choose a time from {} to {}",
        units::time(*.asked), units::time(.there.start), units::time(.there.end)
    )]
    At {
        /// the time that was asked for
        asked: Duration,
        /// the time that the snapshots cover
        there: Range<Duration>,
    },
}

/// Finds the selected snapshot among those pushed.
#[derive(Debug)]
pub struct AccessBuilder {
    options: Options,
    choice: Choice,
    gate: Gate,
    numbers: Option<(u64, u64)>,
    found: Option<(Range<Duration>, Arc<Snapshot>)>,
}

impl AccessBuilder {
    /// A builder that has received no snapshot.
    #[must_use]
    pub fn new(options: Options, choice: Choice) -> Self {
        let gate = Gate::new(options.filter.clone());
        AccessBuilder { gate, options, choice, numbers: None, found: None }
    }

    /// Keeps the snapshot if it is the selected one.
    pub fn push(&mut self, s: &Arc<Snapshot>) {
        let Some(time) = self.gate.admit(s) else { return };
        self.numbers = Some((self.numbers.map_or(s.seq, |n| n.0), s.seq));
        let wanted = match self.choice.pick {
            Pick::Last => true,
            Pick::At(at) => time.contains(&at),
            Pick::Number(n) => s.seq == n,
        };
        if wanted {
            self.found = Some((time, Arc::clone(s)));
        }
    }

    /// The regions.
    ///
    /// # Errors
    /// If there is no such snapshot, or no memory at the selected addresses.
    pub fn finish(self) -> Result<AccessReport, AccessError> {
        let there = self.gate.found()?;
        let Some((time, s)) = self.found else {
            return Err(missing(self.choice.pick, self.numbers.unwrap_or_default(), there));
        };
        let (mut bytes, mut nr_regions, mut regions) = (HeatBytes::default(), 0, Vec::new());
        for view in self.options.filter.views(&s) {
            for r in self.options.filter.clipped(view) {
                bytes += r.bytes(&self.options.thresholds);
                nr_regions += 1;
                let row = RegionRow::new(view, &r, &self.options);
                if self.choice.takes(&row, view) {
                    regions.push(row);
                }
            }
        }
        if nr_regions == 0 {
            return Err(self.gate.no_memory().into());
        }
        self.choice.sort(&mut regions);
        let mut tally = BasisTally::default();
        tally.whole(&bytes, (time.end - time.start).as_secs_f64());
        let name = |v: &TargetView| TargetName {
            target: v.id.0,
            label: self.options.label(v.id),
            left_out_bytes: v.left_out,
        };
        Ok(AccessReport {
            schema_version: 1,
            // The record may have gaps; a single snapshot has none.
            basis: Basis {
                gaps: gaps(&self.options, &(Duration::ZERO..Duration::MAX)),
                ..tally.basis(&self.options, &time)
            },
            seq: s.seq,
            nr_regions,
            targets: self.options.filter.views(&s).map(name).collect(),
            regions,
            title: self.options.title,
        })
    }
}

fn missing(pick: Pick, numbers: (u64, u64), there: Range<Duration>) -> AccessError {
    match pick {
        Pick::Last => FilterError::Empty.into(),
        Pick::At(asked) => AccessError::At { asked, there },
        Pick::Number(asked) => AccessError::Number { asked, there: numbers },
    }
}

impl Choice {
    fn takes(&self, row: &RegionRow, view: &TargetView) -> bool {
        fn within<T: PartialOrd>(range: &Option<Range<T>>, value: &T) -> bool {
            range.as_ref().is_none_or(|r| r.contains(value))
        }
        within(&self.size, &row.size_bytes)
            && within(&self.rate, &f64::from(row.rate_hz))
            && within(&self.age, &row.age())
            && self.mapping.as_ref().is_none_or(|pattern| lies_in(view, &row.range, pattern))
    }

    fn sort(&self, rows: &mut [RegionRow]) {
        // The sort is stable: equal regions stay in the order of addresses.
        match self.sort {
            SortBy::Address => {}
            SortBy::Size => rows.sort_by_key(|r| std::cmp::Reverse(r.size_bytes)),
            SortBy::Rate => rows.sort_by(|a, b| b.rate_hz.total_cmp(&a.rate_hz)),
            SortBy::Age => rows.sort_by(|a, b| b.age_low_ms.total_cmp(&a.age_low_ms)),
            SortBy::Heat => rows.sort_by(|a, b| {
                let by_rate = b.state.cmp(&a.state).then(b.rate_hz.total_cmp(&a.rate_hz));
                by_rate.then(a.age_low_ms.total_cmp(&b.age_low_ms))
            }),
        }
        if self.reverse {
            rows.reverse();
        }
    }
}

fn lies_in(view: &TargetView, range: &AddrRange, pattern: &str) -> bool {
    let whole = pattern.contains(['*', '?']).then(|| WildMatch::new(pattern));
    mappings(view, range).any(|m| {
        let name = label_of(m);
        whole.as_ref().map_or(name.contains(pattern), |whole| whole.matches(name))
    })
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
