//! Saves a span of the history as a record.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use isotherm_core::{Attrs, Nanos};
use isotherm_record::{Event, FileEndReason, Limits, RecordingHeader, Writer};
use isotherm_view::View;

/// Writes the snapshots of `span` to `path`; returns their number. An earlier record of that name becomes
/// FILE.old.
pub fn save(view: &View, span: &Range<Nanos>, path: &Path) -> Result<u64> {
    let events = view.events(span, usize::MAX);
    let first = events.iter().find_map(|e| if let Event::Snapshot(s) = e { Some(s) } else { None });
    let Some(first) = first else { bail!("there is no snapshot in the marked time") };
    let facts = facts(view, first.start, first.attrs);
    let mut writer = Writer::create(path, &facts, Limits::default())?;
    let _ = writer.part(events)?;
    let done = writer.finish(FileEndReason::Stopped, "saved by isotherm top");
    Ok(done.with_context(|| format!("cannot finish {}", path.display()))?.snapshots)
}

/// The facts of the recording, from the time of its part on.
fn facts(view: &View, start: Nanos, attrs: Attrs) -> RecordingHeader {
    let whole = view.facts().cloned();
    let whole =
        whole.unwrap_or_else(|| RecordingHeader::new(env!("CARGO_PKG_VERSION"), attrs, start));
    // A service sends new facts with each snapshot, so that the start may lie before those.
    let ms = |n: Nanos| n.0 / 1_000_000;
    RecordingHeader {
        started_unix_ms: (whole.started_unix_ms + ms(start)).saturating_sub(ms(whole.started)),
        started: start,
        attrs,
        ..whole
    }
}
