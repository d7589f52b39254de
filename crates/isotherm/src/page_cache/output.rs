//! The output of `isotherm files`.

use std::time::Duration;

use isotherm_core::Nanos;
use serde::Serialize;

use super::kept::{FirstRows, Kept};
use super::{By, CacheHeat, PageUse, Row, text};

/// The total and the first rows: `docs/abi/testing/files.md`.
#[derive(Serialize)]
pub struct FilesOutput<'a> {
    schema_version: u32,
    by: By,
    /// ages of the figures in ms: time since all files were listed, and since the last of the first files was read
    listed_ms_ago: u64,
    read_ms_ago: u64,
    /// for how long accesses were observed
    watched_ms: Option<u64>,
    total: Row<'static>,
    rows: Vec<Row<'a>>,
    nr_rows: u64,
    #[serde(skip)]
    rest_bytes: u64,
    remarks: &'a [String],
}

impl<'a> FilesOutput<'a> {
    /// With `watched`, the files were watched so long.
    pub(super) fn new(kept: &'a Kept, by: By, watched: Option<Duration>, now: Nanos) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let ago = |at: Nanos| ms(now.since(at));
        let FirstRows { mut rows, nr_rows, rest_bytes } = kept.first_rows();
        let mut total = kept.total();
        for pages in rows.iter_mut().map(|row| &mut row.pages).chain([&mut total.pages]) {
            pages.heat = watched.map(|_| whole_heat(pages));
        }
        FilesOutput {
            schema_version: 1,
            by,
            listed_ms_ago: ago(kept.listed),
            read_ms_ago: ago(kept.oldest()),
            watched_ms: watched.map(ms),
            total,
            rows,
            nr_rows,
            rest_bytes,
            remarks: &kept.scan.remarks,
        }
    }

    /// As text, for people; `reads`: with the rates of reads, `heat`: with the heat.
    #[must_use]
    pub fn text(&self, reads: bool, heat: bool) -> String {
        let rest = (self.nr_rows.saturating_sub(self.rows.len() as u64), self.rest_bytes);
        let shown = text::Shown { reads, heat, watched_ms: self.watched_ms };
        let table = text::table(&self.total, &self.rows, rest, self.by, shown);
        let ages = text::ages(self.listed_ms_ago, self.read_ms_ago);
        table + &ages + &text::remarks(&self.total, self.by, self.remarks, shown)
    }
}

/// The heat of all resident pages: that of files that were not watched is unknown.
fn whole_heat(pages: &PageUse) -> CacheHeat {
    pages.heat.unwrap_or_default().of_resident(pages.resident_bytes)
}
