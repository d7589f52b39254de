//! The output of `isotherm files`.

use isotherm_core::Nanos;
use serde::Serialize;

use super::kept::{FirstRows, Kept};
use super::{By, Row, text};

/// The total and the first rows: `docs/abi/testing/files.md`.
#[derive(Serialize)]
pub struct FilesOutput<'a> {
    schema_version: u32,
    by: By,
    /// ages of the figures in ms: time since all files were listed, and since the last of the first files was read
    listed_ms_ago: u64,
    read_ms_ago: u64,
    total: Row<'static>,
    rows: Vec<Row<'a>>,
    nr_rows: u64,
    #[serde(skip)]
    rest_bytes: u64,
    remarks: &'a [String],
}

impl<'a> FilesOutput<'a> {
    pub(super) fn new(kept: &'a Kept, by: By, now: Nanos) -> Self {
        let ago = |at: Nanos| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        let FirstRows { rows, nr_rows, rest_bytes } = kept.first_rows();
        FilesOutput {
            schema_version: 1,
            by,
            listed_ms_ago: ago(kept.listed),
            read_ms_ago: ago(kept.oldest()),
            total: kept.total(),
            rows,
            nr_rows,
            rest_bytes,
            remarks: &kept.scan.remarks,
        }
    }

    /// As text, for people; `reads`: with the rates of reads.
    #[must_use]
    pub fn text(&self, reads: bool) -> String {
        let rest = (self.nr_rows.saturating_sub(self.rows.len() as u64), self.rest_bytes);
        let table = text::table(&self.total, &self.rows, rest, self.by, reads);
        let ages = text::ages(self.listed_ms_ago, self.read_ms_ago);
        table + &ages + &text::remarks(&self.total, self.by, self.remarks, reads)
    }
}
