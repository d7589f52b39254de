//! Saves a span of the history as a record.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use isotherm_core::Nanos;
use isotherm_record::{Event, FileEndReason, Limits, Writer};
use isotherm_view::View;

/// Writes the snapshots of `span` to `path`; returns their number. An earlier record of that name becomes
/// FILE.old.
pub fn save(view: &View, span: &Range<Nanos>, path: &Path) -> Result<u64> {
    let events = view.events(span, usize::MAX);
    let first = events.iter().find_map(|e| if let Event::Snapshot(s) = e { Some(s) } else { None });
    let Some(first) = first else { bail!("there is no snapshot in the marked time") };
    let facts = view.header_from(first.start, first.attrs);
    let mut writer = Writer::create(path, &facts, Limits::default())?;
    let _ = writer.part(events)?;
    let done = writer.finish(FileEndReason::Stopped, "saved by isotherm top");
    Ok(done.with_context(|| format!("cannot finish {}", path.display()))?.snapshots)
}
