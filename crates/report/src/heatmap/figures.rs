//! The figures themselves.

use isotherm_core::AddrRange;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::basis::Basis;
use crate::units::hex;

/// Heat over time and address.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Heatmap {
    /// of these keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// what was looked at: its time is that of the left and the right border
    #[serde(flatten)]
    pub basis: Basis,
    /// by target, and highest addresses first: from top to bottom
    pub panels: Vec<Panel>,
    /// what is not drawn
    pub omitted: Omitted,
}

/// One area of memory.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Panel {
    /// number of the target
    pub target: u32,
    /// what the target is called
    pub label: String,
    /// of the mapping that holds most of its resident bytes; `+ 3 more` if it is not alone
    pub name: String,
    /// first to last address
    #[serde(serialize_with = "hex")]
    pub range: AddrRange,
    /// mean over the time
    pub resident_bytes: u64,
    /// what is drawn
    pub cells: Cells,
}

/// Areas without a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Omitted {
    /// how many
    pub areas: usize,
    /// mean over the time
    pub resident_bytes: u64,
    /// mean over the time
    pub hot_bytes: u64,
}

/// What is known of some memory for some time.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub enum Cell {
    /// no region was there
    #[default]
    Unmapped,
    /// less than a quarter was resident
    Absent,
    /// at least half of what was resident cannot be seen
    Unknown,
    /// mean rate, in Hz; zero if it was not touched
    Rate(f32),
}

/// Cells in columns (time) and rows (addresses, the lowest first). In JSON `hz` has a list for each
/// row, with null where there is no rate, and `states` a text for each row with a letter for each
/// column: `r`ate, `u`nknown, `a`bsent, or a dot where nothing is mapped.
#[derive(Debug, Clone, PartialEq)]
pub struct Cells {
    rows: usize,
    cells: Vec<Cell>,
}

impl Cells {
    /// `cells` column by column.
    pub(super) fn new(rows: usize, cells: Vec<Cell>) -> Self {
        Cells { rows: rows.max(1), cells }
    }

    /// How many there are upwards.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many there are across.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.cells.len() / self.rows
    }

    /// The cell in a column and row; unmapped if there is none.
    #[must_use]
    pub fn get(&self, column: usize, row: usize) -> Cell {
        let inside = row < self.rows && column < self.columns();
        if inside { self.cells[column * self.rows + row] } else { Cell::Unmapped }
    }

    fn row(&self, row: usize) -> impl Iterator<Item = Cell> {
        (0..self.columns()).map(move |column| self.get(column, row))
    }
}

impl Serialize for Cells {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let hz = |c| if let Cell::Rate(hz) = c { Some((hz * 1e3).round() / 1e3) } else { None };
        let letter = |c| match c {
            Cell::Unmapped => '.',
            Cell::Absent => 'a',
            Cell::Unknown => 'u',
            Cell::Rate(_) => 'r',
        };
        let rates: Vec<Vec<_>> = (0..self.rows).map(|r| self.row(r).map(hz).collect()).collect();
        let states: Vec<String> =
            (0..self.rows).map(|r| self.row(r).map(letter).collect()).collect();
        let mut map = s.serialize_map(Some(4))?;
        map.serialize_entry("columns", &self.columns())?;
        map.serialize_entry("rows", &self.rows)?;
        map.serialize_entry("hz", &rates)?;
        map.serialize_entry("states", &states)?;
        map.end()
    }
}
