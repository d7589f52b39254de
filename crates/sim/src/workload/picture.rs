//! A workload as a picture: rows of text, each an area of memory, each column a phase.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{
    Access, Op, Order, Phase, TouchRate, Workload, WorkloadError, WorkloadRegion, four_mib, once,
    sixteen, words,
};

/// An area that is not touched.
const REST_CHARS: [char; 2] = ['.', ' '];

/// The file of a workload that has a picture instead of regions and phases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PictureFile {
    about: String,
    #[serde(default = "once")]
    repeat: u32,
    #[serde(default = "sixteen")]
    islands: u32,
    picture: Picture,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Picture {
    /// from the highest address to the lowest, as in a heat map
    rows: Vec<String>,
    /// the rate of each character in the rows other than [`REST_CHARS`]
    rates: BTreeMap<char, TouchRate>,
    /// bytes of an area
    #[serde(with = "words::size")]
    size: u64,
    /// bytes of cold memory before each area
    #[serde(default = "four_mib", with = "words::size")]
    gap: u64,
    /// duration of a column
    #[serde(with = "words::duration")]
    phase: Duration,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    op: Op,
    #[serde(default = "once")]
    threads: u32,
}

impl TryFrom<PictureFile> for Workload {
    type Error = WorkloadError;

    fn try_from(file: PictureFile) -> Result<Self, WorkloadError> {
        let PictureFile { about, repeat, islands, picture } = file;
        let rows: Vec<Vec<char>> = picture.rows.iter().map(|r| r.chars().collect()).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut phases = Vec::new();
        for column in 0..columns {
            let mut accesses = Vec::new();
            for (row, cells) in rows.iter().enumerate() {
                // A row may end early.
                let cell = cells.get(column).copied().unwrap_or(REST_CHARS[0]);
                if !REST_CHARS.contains(&cell) {
                    accesses.push(picture.access(row, column, cell)?);
                }
            }
            let name = format!("column {}", column + 1);
            phases.push(Phase { name, duration: picture.phase, accesses });
        }
        let regions = (0..rows.len()).rev().map(|row| picture.region(row)).collect();
        Ok(Workload { about, repeat, islands, regions, phases })
    }
}

impl Picture {
    fn region(&self, row: usize) -> WorkloadRegion {
        WorkloadRegion {
            name: name(row),
            size: self.size,
            gap: self.gap,
            huge: false,
            shared: false,
        }
    }

    fn access(&self, row: usize, column: usize, cell: char) -> Result<Access, WorkloadError> {
        let Some(&rate) = self.rates.get(&cell) else {
            let known: Vec<String> = self.rates.keys().map(|c| format!("{c:?}")).collect();
            return Err(WorkloadError::Character {
                found: cell,
                row: row + 1,
                column: column + 1,
                known: known.join(", "),
            });
        };
        let (order, op, threads) = (self.order, self.op, self.threads);
        Ok(Access { region: name(row), rate, order, op, threads })
    }
}

fn name(row: usize) -> String {
    format!("row {}", row + 1)
}
