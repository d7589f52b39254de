//! A grid of cells that is filled from snapshots.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::{AddrRange, RateSupport, RegionView, TargetView};

use super::{Cell, CellSupport, Cells};
use crate::columns::column_shares;

/// A region with a smaller resident share is drawn as absent, in units of 1/10,000.
pub const MIN_RESIDENT_BP: u32 = 2500;
/// Rates above this are limited to it: a difference would not be visible, and sums stay finite.
const MAX_CELL_HZ: f32 = 1e6;

/// The cells of one range of addresses over one span of time, which both are known before.
#[derive(Debug, Clone)]
pub struct Canvas {
    range: AddrRange,
    time: Range<Duration>,
    rows: usize,
    columns: usize,
    /// in order of columns
    sums: Vec<Sum>,
    /// states of the cells of a column in the current snapshot
    now: Vec<(CellState, Option<RateSupport>)>,
}

/// State of a cell in one snapshot. The maximum over the regions in the cell is drawn, so that heat wins.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum CellState {
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

impl Canvas {
    /// Empty cells: (rows, columns), at least one of each.
    #[must_use]
    pub fn new(range: AddrRange, time: Range<Duration>, shape: (usize, usize)) -> Self {
        let (rows, columns) = (shape.0.max(1), shape.1.max(1));
        Canvas {
            range,
            time,
            rows,
            columns,
            sums: vec![Sum::default(); rows * columns],
            now: vec![(CellState::Unmapped, None); rows],
        }
    }

    /// Adds the regions of a target within `clip`. `part` is the interval of their snapshot.
    pub fn push(&mut self, view: &TargetView, clip: AddrRange, part: &Range<Duration>) {
        let part = part.start.max(self.time.start)..part.end.min(self.time.end);
        if part.is_empty() {
            return;
        }
        self.look(view, clip);
        for (column, seconds) in column_shares(&part, &self.time, self.columns) {
            let sums = &mut self.sums[column * self.rows..(column + 1) * self.rows];
            for (sum, (state, support)) in sums.iter_mut().zip(&self.now) {
                sum.add(*state, *support, seconds);
            }
        }
    }

    /// Sets `now` from the regions of a target.
    fn look(&mut self, view: &TargetView, clip: AddrRange) {
        self.now.fill((CellState::Unmapped, None));
        let first = view.regions.partition_point(|r| r.range.end <= self.range.start);
        for region in &view.regions[first..] {
            if region.range.start >= self.range.end {
                break;
            }
            let Some(range) = region.range.intersect(&clip) else { continue };
            let state = state(region);
            for cell in &mut self.now[rows(&range, &self.range, self.rows)] {
                if state > cell.0 {
                    *cell = (state, region.support);
                }
            }
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The cells so far; those in `damaged`, by index, are [`Cell::Damaged`].
    pub(super) fn cells(&self, damaged: impl Iterator<Item = Range<usize>>) -> Cells {
        let shown = |sum: &Sum| (sum.cell(), sum.support());
        let mut cells: Vec<(Cell, CellSupport)> = self.sums.iter().map(shown).collect();
        damaged.for_each(|gap| cells[gap].fill((Cell::Damaged, CellSupport::NotSaid)));
        Cells::new(self.rows, cells.into_iter())
    }

    /// The cells.
    #[must_use]
    pub fn finish(self) -> Cells {
        self.cells(std::iter::empty())
    }
}

/// The state in which a region is drawn.
fn state(r: &RegionView) -> CellState {
    let unknown = r.unknown_bp.total();
    if r.resident_bp < MIN_RESIDENT_BP {
        CellState::Absent
    } else if unknown * 2 >= u64::from(r.resident_bp) {
        CellState::Unknown
    } else if r.rate.hz > 0.0 {
        // The mean over all its pages, so that a few hot pages do not make the whole region hot.
        let share = r.touched_bp.min(10_000) as f32 / 10_000.0;
        CellState::Touched((r.rate.hz * share).min(MAX_CELL_HZ))
    } else {
        CellState::Untouched
    }
}

/// The rows of an area in which a region is drawn. These are the rows whose middle it covers, so that adjacent
/// regions stay adjacent and none grows. There is at least one row, so that no region vanishes.
pub(super) fn rows(region: &AddrRange, area: &AddrRange, rows: usize) -> Range<usize> {
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
    fn add(&mut self, state: CellState, support: Option<RateSupport>, seconds: f32) {
        if let (CellState::Untouched | CellState::Touched(_), Some(s)) = (state, support) {
            let part = |bp: u32| seconds * bp.min(10_000) as f32 / 10_000.0;
            self.known_seconds += seconds;
            self.extended += part(s.extended_bp);
            self.old += part(s.old_bp());
        }
        match state {
            CellState::Unmapped => {}
            CellState::Absent => self.absent += seconds,
            CellState::Unknown => self.unknown += seconds,
            CellState::Untouched => self.seen += seconds,
            CellState::Touched(hz) => {
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
