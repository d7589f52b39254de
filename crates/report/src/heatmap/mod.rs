//! Heat over time and address, in a grid whose size does not depend on the record's.
//!
//! It takes two passes: [`Extent`] learns which time and which areas there are, [`Grid`] fills the
//! cells. A cell shows the hottest region in its span of addresses, averaged over its span of time:
//! a mean over addresses would hide a hot island of 64 KiB in a cell of 1 MiB, a maximum over time
//! would turn each single touch into lasting heat.

mod extent;
mod figures;
mod grid;
mod layout;

pub use extent::Extent;
pub use figures::{Cell, CellSupport, Cells, Heatmap, Omitted, Panel};
pub use grid::Grid;

/// How many cells a heat map has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// cells across
    pub columns: usize,
    /// cells up, over all panels and their titles
    pub rows: usize,
    /// rows that the title of a panel takes from them
    pub title_rows: usize,
    /// cells up in each panel at least
    pub min_rows: usize,
    /// panels at most
    pub max_panels: usize,
    /// rows in a panel are a multiple of this
    pub step: usize,
}

impl Shape {
    /// For [`heatmap_picture`](crate::heatmap_picture): a cell is a pixel.
    #[must_use]
    pub fn picture() -> Self {
        Shape { columns: 1040, rows: 460, title_rows: 0, min_rows: 40, max_panels: 8, step: 1 }
    }

    /// For [`terminal()`](crate::terminal()) with so many characters across and lines: a character
    /// is two cells.
    #[must_use]
    pub fn terminal(width: usize, height: usize) -> Self {
        // Around the panels: title, two lines of time axis, three of legend, two of
        // what it rests on. In each: its name.
        const AROUND: usize = 9;
        const LABELS: usize = 11;
        let lines = height.clamp(AROUND + 3, 500) - AROUND;
        Shape {
            columns: width.clamp(LABELS + 20, 1000) - LABELS,
            rows: 2 * lines,
            title_rows: 2,
            min_rows: 4,
            max_panels: (lines / 4).clamp(1, 8),
            step: 2,
        }
    }
}
