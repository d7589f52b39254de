//! The figures of the heat map.

use isotherm_core::AddrRange;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::basis::Basis;
use crate::units::hex;

/// Heat over time and address.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Heatmap {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// the part of the record that was used; its time is that of the left and right borders
    #[serde(flatten)]
    pub basis: Basis,
    /// panels from top to bottom: by target, then in descending order of address
    pub panels: Vec<Panel>,
    /// areas that are not drawn
    pub omitted: Omitted,
}

/// One area of memory.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Panel {
    /// number of the target
    pub target: u32,
    /// label of the target
    pub label: String,
    /// name of the mapping with most of the resident bytes; `+ 3 more` if there are others
    pub name: String,
    /// addresses
    #[serde(serialize_with = "hex")]
    pub range: AddrRange,
    /// mean over the time; `None` if the record does not contain which memory is resident
    pub resident_bytes: Option<u64>,
    /// the cells
    pub cells: Cells,
}

/// Areas without a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Omitted {
    /// number of areas
    pub areas: usize,
    /// mean over the time; `None` if the record does not contain which memory is resident
    pub resident_bytes: Option<u64>,
    /// mean over the time
    pub hot_bytes: u64,
}

/// State of some memory over some time.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub enum Cell {
    /// the record is damaged there
    Damaged,
    /// no region covers it
    #[default]
    Unmapped,
    /// less than a quarter was resident
    Absent,
    /// at least half of the resident memory cannot be observed
    Unknown,
    /// mean rate, in Hz; 0 if it was not touched
    Rate(f32),
}

/// The basis of most of a cell's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CellSupport {
    /// there is no rate, or the record does not contain its basis
    #[default]
    NotSaid,
    /// looks at the memory itself
    Measured,
    /// at least half is extended from samples, or old
    Extended,
    /// at least half is known only from an earlier time
    Old,
}

/// Cells in columns (time) and rows (addresses, ascending). In JSON, `hz` has a list per row, with null where
/// there is no rate. `states` has a text per row, with a letter per column: `r`ate, `u`nknown, `a`bsent, `d`
/// where the record is damaged, or a dot where nothing is mapped. `support` likewise has the basis of the rate:
/// `m`easured, `e`xtended, `o`ld, or a dot.
#[derive(Debug, Clone, PartialEq)]
pub struct Cells {
    rows: usize,
    cells: Vec<Cell>,
    supports: Vec<CellSupport>,
}

impl Cells {
    /// Cells in order of columns, each with the basis of its rate.
    pub(super) fn new(rows: usize, cells: impl Iterator<Item = (Cell, CellSupport)>) -> Self {
        let (cells, supports) = cells.unzip();
        Cells { rows: rows.max(1), cells, supports }
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.cells.len() / self.rows
    }

    /// The cell in a column and row; [`Cell::Unmapped`] outside of the grid.
    #[must_use]
    pub fn get(&self, column: usize, row: usize) -> Cell {
        self.place(column, row).map_or(Cell::Unmapped, |i| self.cells[i])
    }

    /// The basis of a cell's rate.
    #[must_use]
    pub fn support(&self, column: usize, row: usize) -> CellSupport {
        self.place(column, row).map_or(CellSupport::NotSaid, |i| self.supports[i])
    }

    /// Whether the rate of any cell has this basis.
    #[must_use]
    pub fn any(&self, support: CellSupport) -> bool {
        self.supports.contains(&support)
    }

    fn place(&self, column: usize, row: usize) -> Option<usize> {
        let inside = row < self.rows && column < self.columns();
        inside.then_some(column * self.rows + row)
    }

    fn row(&self, row: usize) -> impl Iterator<Item = Cell> {
        (0..self.columns()).map(move |column| self.get(column, row))
    }
}

impl Serialize for Cells {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let hz = |c| if let Cell::Rate(hz) = c { Some((hz * 1e3).round() / 1e3) } else { None };
        let letter = |c| match c {
            Cell::Damaged => 'd',
            Cell::Unmapped => '.',
            Cell::Absent => 'a',
            Cell::Unknown => 'u',
            Cell::Rate(_) => 'r',
        };
        let rates: Vec<Vec<_>> = (0..self.rows).map(|r| self.row(r).map(hz).collect()).collect();
        let states: Vec<String> =
            (0..self.rows).map(|r| self.row(r).map(letter).collect()).collect();
        let support = |(column, row)| match self.support(column, row) {
            CellSupport::NotSaid => '.',
            CellSupport::Measured => 'm',
            CellSupport::Extended => 'e',
            CellSupport::Old => 'o',
        };
        let places = |row| (0..self.columns()).map(move |column| (column, row));
        let supports: Vec<String> =
            (0..self.rows).map(|row| places(row).map(support).collect()).collect();
        let mut map = s.serialize_map(Some(5))?;
        map.serialize_entry("columns", &self.columns())?;
        map.serialize_entry("rows", &self.rows)?;
        map.serialize_entry("hz", &rates)?;
        map.serialize_entry("states", &states)?;
        map.serialize_entry("support", &supports)?;
        map.end()
    }
}
