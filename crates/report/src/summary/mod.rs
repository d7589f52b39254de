//! The summary: hot, warm, cold and unknown memory; the working set; the hottest mappings.

use std::collections::BTreeMap;

mod rows;
mod tally;

use isotherm_core::{Attrs, Snapshot, TargetId, TargetView, Unknown};

use crate::basis::{gaps, ms};
use crate::course::EXACT_SNAPSHOTS;
use crate::distribution::Distribution;
use crate::filter::{FilterError, Gate, Options};
use crate::names::{NO_MAPPING, NameIndex};
use crate::pieces::each_piece;
use crate::units::percent;
use tally::{CostTally, Tally, working_set};

pub use rows::{Bytes, MappingRow, MonitorFigures, Summary, TargetRow, WorkingSet};

/// Maximum number of targets with a row; the totals include all targets. A limit, because records come from
/// outside.
const MAX_TARGET_ROWS: usize = 1 << 16;

/// Makes a [`Summary`] from snapshots, which must be pushed in order of time. The percentiles of the working
/// set are exact for up to a million different values.
#[derive(Debug)]
pub struct Summarizer {
    options: Options,
    gate: Gate,
    names: NameIndex,
    seconds: f64,
    total: Tally,
    last: Tally,
    by_name: Vec<Tally>,
    by_target: BTreeMap<TargetId, TargetTally>,
    /// CPU time of all targets in s
    ran: Option<f64>,
    working_sets: Distribution,
    snapshots: u64,
    cost: CostTally,
    attrs: Attrs,
}

#[derive(Debug, Default)]
struct TargetTally {
    tally: Tally,
    ran: Option<f64>,
}

impl Summarizer {
    /// A summarizer that has received no snapshot.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Summarizer {
            gate: Gate::new(options.filter.clone()),
            options,
            names: NameIndex::new(),
            seconds: 0.0,
            total: Tally::default(),
            last: Tally::default(),
            by_name: Vec::new(),
            by_target: BTreeMap::new(),
            ran: None,
            working_sets: Distribution::new(EXACT_SNAPSHOTS),
            snapshots: 0,
            cost: CostTally::default(),
            attrs: Attrs::default(),
        }
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(part) = self.gate.admit(s) else { return };
        let seconds = (part.end - part.start).as_secs_f64();
        let share = seconds / s.end.since(s.start).as_secs_f64();
        let mut now = Tally::default();
        let filter = self.options.filter.clone();
        for view in filter.views(s) {
            now.add(&self.target(view, seconds, share), 1.0);
        }
        self.working_sets.push(now.working_set(), seconds);
        self.snapshots += 1;
        self.total.add(&now, seconds);
        self.last = now;
        self.seconds += seconds;
        self.cost.add(s, seconds, share);
        self.attrs = s.attrs;
    }

    fn target(&mut self, view: &TargetView, seconds: f64, share: f64) -> Tally {
        let now = self.mappings(view, seconds);
        let add = |sum: &mut Option<f64>| {
            if let Some(ran) = view.ran {
                *sum.get_or_insert(0.0) += ran.as_secs_f64() * share;
            }
        };
        add(&mut self.ran);
        if self.by_target.len() < MAX_TARGET_ROWS || self.by_target.contains_key(&view.id) {
            let of = self.by_target.entry(view.id).or_default();
            of.tally.add(&now, seconds);
            add(&mut of.ran);
        }
        now
    }

    fn mappings(&mut self, view: &TargetView, seconds: f64) -> Tally {
        let clip = self.options.filter.clip();
        let ids = self.names.of(view);
        let mut now = Tally::default();
        for (m, &id) in view.mappings.iter().zip(ids.iter()) {
            let len = m.range.intersect(&clip).unwrap_or_default().len() as f64;
            now.mapped += len;
            tally(&mut self.by_name, id).mapped += len * seconds;
        }
        let is_whole = view.mappings.iter().all(|m| m.range.intersect(&clip) == Some(m.range));
        if let (Some(of), [id, ..]) = (view.dirty.filter(|_| is_whole), &*ids) {
            let part = Tally::of_dirty(&of);
            tally(&mut self.by_name, *id).add(&part, seconds);
            now.add(&part, 1.0);
        }
        each_piece(view, clip, |piece, mapping| {
            let mut part =
                Tally::of(&piece.bytes(&self.options.thresholds), &piece.support_bytes());
            for (sum, why) in part.by_reason.iter_mut().zip(Unknown::ALL) {
                *sum = piece.unknown_bytes(why) as f64;
            }
            if mapping.is_none() {
                part.mapped = piece.range.len() as f64;
            }
            let id = mapping.and_then(|i| ids.get(i)).unwrap_or(&NO_MAPPING);
            tally(&mut self.by_name, *id).add(&part, seconds);
            now.add(&part, 1.0);
        });
        now
    }

    /// The figures.
    ///
    /// # Errors
    /// If there is nothing in the time or at the addresses wanted.
    pub fn finish(self) -> Result<Summary, FilterError> {
        let time = self.gate.found()?;
        if self.total.mapped <= 0.0 {
            return Err(self.gate.no_memory());
        }
        Ok(Summary {
            schema_version: 1,
            title: self.options.title.clone(),
            from_ms: ms(time.start),
            to_ms: ms(time.end),
            snapshots: self.snapshots,
            sample_ms: ms(self.attrs.sample),
            aggr_ms: ms(self.attrs.aggr),
            hot_hz: self.options.thresholds.hot_hz,
            cold_ms: ms(self.options.thresholds.cold_age),
            look: self.options.look.clone(),
            missing: self.options.missing,
            gaps: gaps(&self.options, &time),
            mean: self.total.mean(self.seconds, self.options.missing),
            last: self.last.mean(1.0, self.options.missing),
            mappings: self.rows(),
            targets: self.targets(),
            monitor: self.cost.figures(self.seconds, &self.attrs),
            target_cpu_percent: self.ran.map(|ran| percent(ran, self.seconds)),
            working_set: working_set(self.working_sets),
        })
    }

    fn targets(&self) -> Vec<TargetRow> {
        let row = |(&id, of): (&TargetId, &TargetTally)| TargetRow {
            target: id.0,
            label: self.options.label(id),
            cpu_percent: of.ran.map(|ran| percent(ran, self.seconds)),
            bytes: of.tally.mean(self.seconds, self.options.missing),
        };
        self.by_target.iter().map(row).collect()
    }

    fn rows(&self) -> Vec<MappingRow> {
        let row = |(i, t): (usize, &Tally)| MappingRow {
            name: self.names.get(i).to_owned(),
            bytes: t.mean(self.seconds, self.options.missing),
        };
        let mut rows: Vec<_> = self.by_name.iter().enumerate().map(row).collect();
        rows.retain(|r| r.bytes.mapped_bytes > 0);
        rows.sort_by_key(|r| {
            let b = &r.bytes;
            std::cmp::Reverse((b.hot_bytes, b.warm_bytes, b.of_any_heat(), b.mapped_bytes))
        });
        rows
    }
}

/// The tally of a name, which is created if it does not exist.
fn tally(all: &mut Vec<Tally>, id: usize) -> &mut Tally {
    if all.len() <= id {
        all.resize(id + 1, Tally::default());
    }
    &mut all[id]
}

#[cfg(test)]
mod tests;
