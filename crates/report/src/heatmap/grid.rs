//! Second pass: fills the cells.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::{AddrRange, RateSupport, RegionView, Snapshot, TargetView};

use super::extent::Extent;
use super::layout::{Area, choose, heights};
use super::{Cell, CellSupport, Cells, Heatmap, Omitted, Panel, Shape};
use crate::basis::Basis;
use crate::columns::{column_shares, gap_columns};
use crate::filter::{FilterError, Gate, Options};

/// A region with a smaller resident share is drawn as absent, in units of 1/10,000.
const RESIDENT_BP: u32 = 2500;
/// Rates above this are limited to it: a difference would not be visible, and sums stay finite.
const MAX_HZ: f32 = 1e6;

/// Receives the snapshots a second time and makes a [`Heatmap`] from them.
#[derive(Debug)]
pub struct Grid {
    options: Options,
    gate: Gate,
    time: Range<Duration>,
    basis: Basis,
    columns: usize,
    drawings: Vec<Drawing>,
    omitted: Omitted,
}

/// A panel that is being filled.
#[derive(Debug)]
struct Drawing {
    area: Area,
    rows: usize,
    /// in order of columns
    sums: Vec<Sum>,
    /// states of the cells of a column in the current snapshot
    now: Vec<(State, Option<RateSupport>)>,
}

/// State of a cell in one snapshot. The maximum over the regions in the cell is drawn, so that heat wins.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum State {
    Unmapped,
    Absent,
    Untouched,
    Unknown,
    Touched(f32),
}

/// Seconds in each state, and touches (rate times seconds).
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    absent: f32,
    unknown: f32,
    seen: f32,
    touches: f32,
    /// seconds for which the basis of the rate is known; of these, extended and old ones
    known_seconds: f32,
    extended: f32,
    old: f32,
}

impl Grid {
    /// An empty grid for the result of the first pass.
    ///
    /// # Errors
    /// If the first pass has found nothing.
    pub fn new(extent: Extent, shape: &Shape) -> Result<Self, FilterError> {
        let time = extent.gate.found()?;
        let (areas, omitted) = choose(&extent, shape.max_panels.max(1));
        if areas.is_empty() {
            return Err(extent.no_memory());
        }
        let columns = shape.columns.max(1);
        let sizes: Vec<u64> = areas.iter().map(|a| a.range.len()).collect();
        let drawings = areas
            .into_iter()
            .zip(heights(&sizes, shape))
            .map(|(area, rows)| Drawing {
                area,
                rows,
                sums: vec![Sum::default(); rows * columns],
                now: vec![(State::Unmapped, None); rows],
            })
            .collect();
        let gate = Gate::new(extent.options.filter.clone());
        let basis = extent.tally.basis(&extent.options, &time);
        Ok(Grid { options: extent.options, gate, time, basis, columns, drawings, omitted })
    }

    /// Adds a snapshot, which must be one that the first pass has received.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(part) = self.gate.admit(s) else { return };
        let shares = column_shares(&part, &self.time, self.columns);
        for view in self.options.filter.views(s) {
            for d in self.drawings.iter_mut().filter(|d| d.area.target == view.id) {
                d.look(view, self.options.filter.clip());
                d.add(&shares);
            }
        }
    }

    /// The figures.
    #[must_use]
    pub fn finish(self) -> Heatmap {
        let gaps = gap_columns(&self.basis, self.columns);
        let cells = |d: &Drawing| {
            let shown = |sum: &Sum| (sum.cell(), sum.support());
            let mut cells: Vec<(Cell, CellSupport)> = d.sums.iter().map(shown).collect();
            for gap in &gaps {
                let gap = gap.start * d.rows..gap.end * d.rows;
                cells[gap].fill((Cell::Damaged, CellSupport::NotSaid));
            }
            Cells::new(d.rows, cells.into_iter())
        };
        let panel = |d: Drawing| Panel {
            cells: cells(&d),
            target: d.area.target.0,
            label: self.options.label(d.area.target),
            name: d.area.name,
            range: d.area.range,
            resident_bytes: d.area.resident as u64,
        };
        Heatmap {
            schema_version: 1,
            basis: self.basis,
            panels: self.drawings.into_iter().map(panel).collect(),
            omitted: self.omitted,
            title: self.options.title,
        }
    }
}

impl Drawing {
    /// Sets `now` from a snapshot.
    fn look(&mut self, view: &TargetView, clip: AddrRange) {
        self.now.fill((State::Unmapped, None));
        let first = view.regions.partition_point(|r| r.range.end <= self.area.range.start);
        for region in &view.regions[first..] {
            if region.range.start >= self.area.range.end {
                break;
            }
            let Some(range) = region.range.intersect(&clip) else { continue };
            let state = state(region);
            for cell in &mut self.now[rows(&range, &self.area.range, self.rows)] {
                if state > cell.0 {
                    *cell = (state, region.support);
                }
            }
        }
    }

    /// Adds `now` to columns, weighted by the seconds of the snapshot in each.
    fn add(&mut self, shares: &[(usize, f32)]) {
        for &(column, seconds) in shares {
            let sums = &mut self.sums[column * self.rows..(column + 1) * self.rows];
            for (sum, (state, support)) in sums.iter_mut().zip(&self.now) {
                sum.add(*state, *support, seconds);
            }
        }
    }
}

/// The state in which a region is drawn.
fn state(r: &RegionView) -> State {
    let unknown = r.unknown_bp.total();
    if r.resident_bp < RESIDENT_BP {
        State::Absent
    } else if unknown * 2 >= u64::from(r.resident_bp) {
        State::Unknown
    } else if r.rate.hz > 0.0 {
        // The mean over all its pages, so that a few hot pages do not make the whole region hot.
        let share = r.touched_bp.min(10_000) as f32 / 10_000.0;
        State::Touched((r.rate.hz * share).min(MAX_HZ))
    } else {
        State::Untouched
    }
}

/// The rows of an area in which a region is drawn: those whose middle it covers, so that adjacent regions stay
/// adjacent and none grows; at least one row, so that no region vanishes.
fn rows(region: &AddrRange, area: &AddrRange, rows: usize) -> Range<usize> {
    let Some(inside) = region.intersect(area) else { return 0..0 };
    let row = |addr: u64| (addr - area.start) as f64 / area.len() as f64 * rows as f64;
    let (start, end) = (row(inside.start), row(inside.end));
    let (from, to) = (start.round() as usize, end.round() as usize);
    if from < to {
        return from..to.min(rows);
    }
    let middle = ((start + end) / 2.0) as usize;
    middle.min(rows - 1)..middle.min(rows - 1) + 1
}

impl Sum {
    fn add(&mut self, state: State, support: Option<RateSupport>, seconds: f32) {
        if let (State::Untouched | State::Touched(_), Some(s)) = (state, support) {
            let part = |bp: u32| seconds * bp.min(10_000) as f32 / 10_000.0;
            self.known_seconds += seconds;
            self.extended += part(s.extended_bp);
            self.old += part(s.old_bp());
        }
        match state {
            State::Unmapped => {}
            State::Absent => self.absent += seconds,
            State::Unknown => self.unknown += seconds,
            State::Untouched => self.seen += seconds,
            State::Touched(hz) => {
                self.seen += seconds;
                self.touches += hz * seconds;
            }
        }
    }

    /// The basis of most of its rate.
    fn support(&self) -> CellSupport {
        let half = self.known_seconds / 2.0;
        match self.cell() {
            Cell::Rate(_) if self.known_seconds <= 0.0 => CellSupport::NotSaid,
            Cell::Rate(_) if self.old >= half => CellSupport::Old,
            Cell::Rate(_) if self.old + self.extended >= half => CellSupport::Extended,
            Cell::Rate(_) => CellSupport::Measured,
            _ => CellSupport::NotSaid,
        }
    }

    /// The state that lasted longest.
    fn cell(&self) -> Cell {
        if self.seen > 0.0 && self.seen >= self.absent.max(self.unknown) {
            Cell::Rate(self.touches / self.seen)
        } else if self.unknown > 0.0 && self.unknown >= self.absent {
            Cell::Unknown
        } else if self.absent > 0.0 {
            Cell::Absent
        } else {
            Cell::Unmapped
        }
    }
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;
