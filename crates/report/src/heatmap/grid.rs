//! Second pass: fills the cells.

use isotherm_core::Snapshot;

use super::extent::Extent;
use super::layout::{Area, choose, heights};
use super::{Canvas, GridSize, Heatmap, Omitted, Panel};
use crate::basis::Basis;
use crate::columns::gap_columns;
use crate::filter::{FilterError, Gate, Options};

/// Receives the snapshots a second time and makes a [`Heatmap`] from them.
#[derive(Debug)]
pub struct Grid {
    options: Options,
    gate: Gate,
    basis: Basis,
    columns: usize,
    drawings: Vec<Drawing>,
    omitted: Omitted,
}

/// A panel that is being filled.
#[derive(Debug)]
struct Drawing {
    area: Area,
    canvas: Canvas,
}

impl Grid {
    /// An empty grid for the result of the first pass.
    ///
    /// # Errors
    /// If the first pass has found nothing.
    pub fn new(extent: Extent, shape: &GridSize) -> Result<Self, FilterError> {
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
                canvas: Canvas::new(area.range, time.clone(), (rows, columns)),
                area,
            })
            .collect();
        let gate = Gate::new(extent.options.filter.clone());
        let basis = extent.tally.basis(&extent.options, &time);
        Ok(Grid { options: extent.options, gate, basis, columns, drawings, omitted })
    }

    /// Adds a snapshot, which must be one that the first pass has received.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(part) = self.gate.admit(s) else { return };
        for view in self.options.filter.views(s) {
            for d in self.drawings.iter_mut().filter(|d| d.area.target == view.id) {
                d.canvas.push(view, self.options.filter.clip(), &part);
            }
        }
    }

    /// The figures.
    #[must_use]
    pub fn finish(self) -> Heatmap {
        let gaps = gap_columns(&self.basis, self.columns);
        let cells = |d: &Drawing| {
            let gaps =
                gaps.iter().map(|gap| gap.start * d.canvas.rows()..gap.end * d.canvas.rows());
            d.canvas.cells(gaps)
        };
        let panel = |d: Drawing| Panel {
            cells: cells(&d),
            target: d.area.target.0,
            label: self.options.label(d.area.target),
            name: d.area.name,
            range: d.area.range,
            resident_bytes: self.options.missing.resident(d.area.resident as u64),
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

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;
