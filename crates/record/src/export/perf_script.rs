//! A record as the text that `perf script` prints of `damon:damon_aggregated`.

use std::collections::HashMap;
use std::io::Write;

use isotherm_core::TargetId;

use super::{ExportError, Exported, each};
use crate::damo::{DamonCounts, place, target_id};
use crate::event::Event;
use crate::reader::Reader;

/// Writes a record as `perf script` prints the tracepoint `damon:damon_aggregated`: a line for each region. The text
/// has neither the begin of the first snapshot nor the intervals.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or `out` cannot be written.
pub fn export_perf_script(reader: Reader, mut out: impl Write) -> Result<Exported, ExportError> {
    let (mut facts, mut ids) = (None, HashMap::<TargetId, (u64, u64)>::new());
    let exported = each(reader, |event| {
        let s = match event {
            Event::Header(f) => {
                facts = Some(f.clone());
                return Ok(false);
            }
            Event::Target(t) => {
                let [kdamond, _] = place(t);
                ids.insert(t.id, (kdamond, target_id(t).unwrap_or(t.id.0.into())));
                return Ok(false);
            }
            Event::Snapshot(s) => s,
            _ => return Ok(false),
        };
        let counts = DamonCounts::of(facts.as_ref(), s);
        let (sec, nsec) = (s.end.0 / 1_000_000_000, s.end.0 % 1_000_000_000);
        for view in &s.targets {
            let (kdamond, id) = ids.get(&view.id).copied().unwrap_or((0, view.id.0.into()));
            for r in &view.regions {
                let age = counts.age(r).map_or(String::new(), |age| format!(" {age}"));
                writeln!(
                    out,
                    "kdamond.{kdamond}     0 [000] {sec}.{nsec:09}: damon:damon_aggregated: target_id={id} nr_regions={} \
                     {}-{}: {}{age}",
                    view.regions.len(),
                    r.range.start,
                    r.range.end,
                    counts.nr_accesses(r)
                )?;
            }
        }
        Ok(true)
    })?;
    out.flush()?;
    Ok(exported)
}
