//! The output of `isotherm files`.

use serde::Serialize;

use super::{By, CacheScan, Row, text, total};

/// The total and the first rows: `docs/abi/testing/files.md`.
#[derive(Serialize)]
pub struct FilesOutput<'a> {
    schema_version: u32,
    by: By,
    total: Row<'a>,
    #[serde(serialize_with = "first")]
    rows: (Vec<Row<'a>>, usize),
    nr_rows: usize,
    remarks: &'a [String],
    #[serde(skip)]
    reading: &'a CacheScan,
}

fn first<S: serde::Serializer>(rows: &(Vec<Row<'_>>, usize), s: S) -> Result<S::Ok, S::Error> {
    rows.0.get(..rows.1).unwrap_or(&rows.0).serialize(s)
}

impl<'a> FilesOutput<'a> {
    /// The first `limit` rows of a reading that was grouped by `by`.
    #[must_use]
    pub fn new(reading: &'a CacheScan, by: By, rows: Vec<Row<'a>>, limit: usize) -> Self {
        let (total, nr_rows, remarks) = (total(reading), rows.len(), reading.remarks.as_slice());
        FilesOutput { schema_version: 1, by, total, rows: (rows, limit), nr_rows, remarks, reading }
    }

    /// As text, for people; `reads`: with the rates of reads.
    #[must_use]
    pub fn text(&self, reads: bool) -> String {
        let (rows, limit) = &self.rows;
        let table = text::table(&self.total, rows, self.by, *limit, reads);
        table + &text::remarks(&self.total, self.by, self.reading, reads)
    }
}
