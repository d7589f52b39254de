//! Heat over time and address, in a grid whose size does not depend on the record's.
//!
//! It requires two passes: [`Extent`] determines the time and the areas, [`Grid`] fills the cells. A cell shows
//! the hottest region in its span of addresses, averaged over its span of time. A mean over addresses would
//! hide a hot island of 64 KiB in a cell of 1 MiB. A maximum over time would turn each single touch into
//! lasting heat.

mod canvas;
mod cells;
mod extent;
mod grid;
mod layout;

pub use canvas::{Canvas, MIN_RESIDENT_BP};
pub use cells::{Cell, CellSupport, Cells, Heatmap, Omitted, Panel};
pub use extent::Extent;
pub use grid::Grid;
pub use layout::SMALL_GAP;

/// The number of cells of a heat map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridSize {
    /// columns
    pub columns: usize,
    /// rows, over all panels and their titles
    pub rows: usize,
    /// rows that the title of a panel occupies
    pub title_rows: usize,
    /// minimum number of rows in a panel
    pub min_rows: usize,
    /// maximum number of panels
    pub max_panels: usize,
    /// rows in a panel are a multiple of this
    pub step: usize,
}

impl GridSize {
    /// For [`heatmap_picture`](crate::heatmap_picture): one pixel per cell.
    #[must_use]
    pub fn picture() -> Self {
        GridSize { columns: 1040, rows: 460, title_rows: 0, min_rows: 40, max_panels: 8, step: 1 }
    }

    /// For [`terminal()`](crate::terminal()) with this many characters per line and this many lines: two cells
    /// per character.
    #[must_use]
    pub fn terminal(width: usize, height: usize) -> Self {
        // Lines around the panels: title, two of time axis, three of legend, two of the basis. Each panel has
        // one for its name.
        const LINES_AROUND: usize = 9;
        const LABELS: usize = 11;
        let lines = height.clamp(LINES_AROUND + 3, 500) - LINES_AROUND;
        GridSize {
            columns: width.clamp(LABELS + 20, 1000) - LABELS,
            rows: 2 * lines,
            title_rows: 2,
            min_rows: 4,
            max_panels: (lines / 4).clamp(1, 8),
            step: 2,
        }
    }
}
