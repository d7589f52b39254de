//! A record as the text that `perf script` prints of `damon:damon_aggregated`.

use std::collections::HashMap;
use std::io::Write;

use isotherm_core::TargetId;

use super::{ExportError, Exported, each};
use crate::damo::{Counts, target_id};
use crate::event::Event;
use crate::reader::Reader;

/// Writes a record as `perf script` prints the tracepoint `damon:damon_aggregated`: a line for each region. The text
/// has neither the begin of the first snapshot nor the intervals.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or `out` cannot be written.
pub fn export_perf_script(reader: Reader, mut out: impl Write) -> Result<Exported, ExportError> {
    let mut ids: HashMap<TargetId, u64> = HashMap::new();
    let exported = each(reader, |event| {
        let s = match event {
            Event::Target(t) => {
                ids.insert(t.id, target_id(t).unwrap_or(t.id.0.into()));
                return Ok(false);
            }
            Event::Snapshot(s) => s,
            _ => return Ok(false),
        };
        let counts = Counts::of(&s.attrs);
        let (sec, nsec) = (s.end.0 / 1_000_000_000, s.end.0 % 1_000_000_000);
        for view in &s.targets {
            let id = ids.get(&view.id).copied().unwrap_or(view.id.0.into());
            for r in &view.regions {
                writeln!(
                    out,
                    "kdamond.0     0 [000] {sec}.{nsec:09}: damon:damon_aggregated: target_id={id} nr_regions={} \
                     {}-{}: {} {}",
                    view.regions.len(),
                    r.range.start,
                    r.range.end,
                    counts.nr_accesses(r),
                    counts.age(r)
                )?;
            }
        }
        Ok(true)
    })?;
    out.flush()?;
    Ok(exported)
}
