//! A record in damo's `json_compressed`.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::{Snapshot, TargetView};

use super::{ExportError, Exported, each};
use crate::damo::{Counts, knows_intervals, place, target_id};
use crate::event::{Event, ReadError};
use crate::header::{RecordingHeader, TargetInfo};
use crate::reader::Reader;

/// Writes a record in damo's `json_compressed`. There, each target has its snapshots; so `open` is called once, and
/// once more for each target.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or `out` cannot be written.
pub fn export_damo_json(
    mut open: impl FnMut() -> Result<Reader, ReadError>,
    out: impl Write,
) -> Result<Exported, ExportError> {
    let (mut targets, mut facts): (Vec<TargetInfo>, _) = (Vec::new(), None);
    let mut exported = each(open()?.without_snapshots(), |event| {
        match event {
            Event::Header(f) => facts = Some(f.clone()),
            Event::Target(t) if targets.iter().all(|known| known.id != t.id) => {
                targets.push(t.clone());
            }
            _ => {}
        }
        Ok(false)
    })?;
    let mut out = ZlibEncoder::new(out, Compression::default());
    out.write_all(b"[")?;
    for (i, target) in targets.iter().enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        begin_record(&mut out, facts.as_ref(), target)?;
        let mut first = true;
        exported = each(open()?, |event| {
            let Event::Snapshot(s) = event else { return Ok(false) };
            if let Some(view) = s.targets.iter().find(|view| view.id == target.id) {
                out.write_all(if first { b"\n" } else { b",\n" })?;
                first = false;
                snapshot(&mut out, s, view, Counts::of(facts.as_ref(), s))?;
            }
            Ok(true)
        })?;
        out.write_all(b"], \"data_source\": \"unknown\"}")?;
    }
    out.write_all(b"]\n")?;
    out.finish()?.flush()?;
    Ok(exported)
}

fn begin_record(
    out: &mut impl Write,
    facts: Option<&RecordingHeader>,
    target: &TargetInfo,
) -> std::io::Result<()> {
    let [kdamond, context] = place(target);
    write!(out, "{{\"kdamond_idx\": {kdamond}, \"context_idx\": {context}, \"intervals\": ")?;
    match facts.filter(|f| knows_intervals(f)) {
        Some(facts) => {
            let us = |d: Duration| d.as_micros();
            let a = &facts.attrs;
            write!(
                out,
                "{{\"sample_us\": \"{}\", \"aggr_us\": \"{}\", \"ops_update_us\": \"{}\", \"intervals_goal\": \
                 {{\"access_bp\": \"0\", \"aggrs\": \"0\", \"min_sample_us\": \"0\", \"max_sample_us\": \"0\"}}}}",
                us(a.sample),
                us(a.aggr),
                us(a.update)
            )?;
        }
        None => write!(out, "null")?,
    }
    let id = target_id(target).map_or("null".to_owned(), |id| id.to_string());
    write!(
        out,
        ", \"scheme_idx\": null, \"target_id\": {id}, \"scheme_filters\": [], \"snapshots\": ["
    )
}

fn snapshot(
    out: &mut impl Write,
    s: &Snapshot,
    view: &TargetView,
    counts: Counts,
) -> std::io::Result<()> {
    write!(
        out,
        "{{\"start_time\": \"{}\", \"end_time\": \"{}\", \"total_bytes\": null, \"damos_stats\": null, \
         \"sample_interval_us\": null, \"regions\": [",
        s.start.0, s.end.0
    )?;
    for (i, r) in view.regions.iter().enumerate() {
        let age = counts.age(r).map_or("null".to_owned(), |age| format!("\"{age}\""));
        write!(
            out,
            "{}{{\"start\": \"{}\", \"end\": \"{}\", \"nr_accesses\": {{\"samples\": {}, \"percent\": null}}, \
             \"age\": {{\"usec\": null, \"aggr_intervals\": {age}}}}}",
            if i == 0 { "" } else { ", " },
            r.range.start,
            r.range.end,
            counts.nr_accesses(r)
        )?;
    }
    write!(out, "]}}")
}
