//! A record in damo's `json_compressed`.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::{Attrs, RegionView, Snapshot, TargetId, TargetView, rate};

use super::{ExportError, Exported, each};
use crate::damo::{DamonCounts, is_imported, knows_intervals, place, target_id};
use crate::event::{Event, ReadError};
use crate::header::{RecordingHeader, TargetInfo};
use crate::reader::Reader;

/// Sampling intervals that follow from rates count as the same if they differ by less than this share, because a record
/// has rounded rates.
const SAME_INTERVAL_SHARE: f64 = 0.3;

/// Writes a record in damo's `json_compressed`. There, each target has its intervals and its snapshots; so `open` is
/// called once for all intervals, and once more for each target.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or `out` cannot be written.
pub fn export_damo_json(
    mut open: impl FnMut() -> Result<Reader, ReadError>,
    out: impl Write,
) -> Result<Exported, ExportError> {
    let (mut targets, mut facts): (Vec<TargetInfo>, Option<RecordingHeader>) = (Vec::new(), None);
    let mut sampling = HashMap::<TargetId, Sampling>::new();
    let mut exported = each(open()?, |event| {
        match event {
            Event::Header(f) => facts = Some(f.clone()),
            Event::Target(t) if targets.iter().all(|known| known.id != t.id) => {
                targets.push(t.clone());
            }
            Event::Snapshot(s) => {
                let Some(facts) = &facts else { return Ok(false) };
                for view in &s.targets {
                    sampling.entry(view.id).or_default().next(facts, s, view);
                }
            }
            _ => {}
        }
        Ok(false)
    })?;
    let known = facts.as_ref().filter(|facts| knows_intervals(facts));
    let mut out = ZlibEncoder::new(out, Compression::default());
    out.write_all(b"[")?;
    for (i, target) in targets.iter().enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        let all = sampling.get(&target.id).copied().unwrap_or_default();
        let tuned = all.is_tuned();
        let in_us =
            known.is_some_and(|f| tuned || all.last.is_some_and(|last| last != f.attrs.sample));
        begin_record(&mut out, known.map(|facts| &facts.attrs), all, target)?;
        let (mut first, mut so_far) = (true, if tuned { Sampling::default() } else { all });
        exported = each(open()?, |event| {
            let Event::Snapshot(s) = event else { return Ok(false) };
            if let Some(view) = s.targets.iter().find(|view| view.id == target.id) {
                out.write_all(if first { b"\n" } else { b",\n" })?;
                first = false;
                let mut counts = DamonCounts::of(facts.as_ref(), s);
                let sample = known.map(|facts| {
                    let sample = so_far.next(facts, s, view);
                    counts = counts.in_intervals_of(&scaled(&facts.attrs, sample));
                    sample
                });
                snapshot(&mut out, s, view, counts, sample.filter(|_| tuned), in_us)?;
            }
            Ok(true)
        })?;
        out.write_all(b"], \"data_source\": \"unknown\"}")?;
    }
    out.write_all(b"]\n")?;
    out.finish()?.flush()?;
    Ok(exported)
}

/// The sampling intervals of one target, in the snapshots so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sampling {
    last: Option<Duration>,
    /// the shortest and the longest one
    limits: Option<[Duration; 2]>,
}

impl Sampling {
    /// The sampling interval of the target in the next snapshot. A snapshot of several imported targets states that of
    /// the shortest result; those of the others follow from their rates. Without accesses it is the last one.
    fn next(&mut self, facts: &RecordingHeader, s: &Snapshot, view: &TargetView) -> Duration {
        let stated = s.attrs.sample;
        let found = match is_imported(facts) && s.targets.len() > 1 {
            true => of_rates(&view.regions, DamonCounts::of(Some(facts), s)),
            false => Some(stated),
        };
        let same = |known: &Duration, found: Duration| {
            known.abs_diff(found).as_secs_f64() < SAME_INTERVAL_SHARE * found.as_secs_f64()
        };
        if let Some(found) = found {
            let known = [Some(stated), self.last].into_iter().flatten();
            let sample = known.into_iter().find(|known| same(known, found)).unwrap_or(found);
            let [least, most] = self.limits.unwrap_or([sample; 2]);
            self.limits = Some([least.min(sample), most.max(sample)]);
            self.last = Some(sample);
        }
        self.last.unwrap_or(stated)
    }

    fn is_tuned(self) -> bool {
        self.limits.is_some_and(|[least, most]| least < most)
    }
}

/// The sampling interval that leads from the shares of accesses of regions to their rates. `None` if the regions do not
/// agree, or none was accessed.
fn of_rates(regions: &[RegionView], counts: DamonCounts) -> Option<Duration> {
    let of = |r: &RegionView| {
        let share = f64::from(r.accesses_bp) / 1e4;
        // For a share of 1, the rate depends on the number of looks.
        let looks = if share < 1.0 { 1e4 } else { counts.most() as f64 };
        f64::from(rate(share * looks, looks, 1, Duration::from_secs(1)).hz) / f64::from(r.rate.hz)
    };
    let accessed = || regions.iter().filter(|r| r.accesses_bp > 0);
    let partly = || accessed().filter(|r| r.accesses_bp < 10_000);
    // A rate is rounded the less, the narrower its interval is.
    let narrow = |a: &&RegionView, b: &&RegionView| {
        let of = |r: &RegionView| r.rate.low / r.rate.high;
        of(a).total_cmp(&of(b))
    };
    let best = partly().max_by(narrow).or_else(|| accessed().next())?;
    let agrees = |r: &RegionView| (of(r) / of(best) - 1.0).abs() < SAME_INTERVAL_SHARE;
    let us = (of(best) * 1e6).round();
    (partly().all(agrees) && (1.0..1e15).contains(&us)).then(|| Duration::from_micros(us as u64))
}

/// The intervals of a recording for another sampling interval. damo, too, presumes as many samples per aggregation.
fn scaled(attrs: &Attrs, sample: Duration) -> Attrs {
    let ns =
        attrs.aggr.as_nanos().saturating_mul(sample.as_nanos()) / attrs.sample.as_nanos().max(1);
    Attrs { sample, aggr: Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)), ..*attrs }
}

/// damo reads the sampling interval of a snapshot only if the record has a goal of tuning: any number of intervals
/// above 0.
fn begin_record(
    out: &mut impl Write,
    attrs: Option<&Attrs>,
    sampling: Sampling,
    target: &TargetInfo,
) -> std::io::Result<()> {
    let [kdamond, context] = place(target);
    write!(out, "{{\"kdamond_idx\": {kdamond}, \"context_idx\": {context}, \"intervals\": ")?;
    match attrs {
        Some(attrs) => {
            let us = |d: Duration| d.as_micros();
            let (a, aggrs, [least, most]) = match (sampling.limits, sampling.last) {
                (Some(limits), _) if sampling.is_tuned() => (*attrs, 1, limits),
                (_, last) => (scaled(attrs, last.unwrap_or(attrs.sample)), 0, [Duration::ZERO; 2]),
            };
            write!(
                out,
                "{{\"sample_us\": \"{}\", \"aggr_us\": \"{}\", \"ops_update_us\": \"{}\", \"intervals_goal\": \
                 {{\"access_bp\": \"0\", \"aggrs\": \"{aggrs}\", \"min_sample_us\": \"{}\", \"max_sample_us\": \"{}\"}}}}",
                us(a.sample),
                us(a.aggr),
                us(a.update),
                us(least),
                us(most)
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

/// Writes a snapshot, with its sampling interval if that is tuned. damo counts ages in the intervals of the record, which
/// may be tuned or inexact, unless they are there in microseconds, too.
fn snapshot(
    out: &mut impl Write,
    s: &Snapshot,
    view: &TargetView,
    counts: DamonCounts,
    tuned: Option<Duration>,
    in_us: bool,
) -> std::io::Result<()> {
    let null = || "null".to_owned();
    let text = |n: u128| format!("\"{n}\"");
    write!(
        out,
        "{{\"start_time\": \"{}\", \"end_time\": \"{}\", \"total_bytes\": null, \"damos_stats\": null, \
         \"sample_interval_us\": {}, \"regions\": [",
        s.start.0,
        s.end.0,
        tuned.map_or_else(null, |sample| text(sample.as_micros()))
    )?;
    for (i, r) in view.regions.iter().enumerate() {
        let age = counts.age(r);
        let usec = age.filter(|_| in_us).map_or_else(null, |_| text(r.age.as_micros()));
        let age = age.map_or_else(null, text);
        write!(
            out,
            "{}{{\"start\": \"{}\", \"end\": \"{}\", \"nr_accesses\": {{\"samples\": {}, \"percent\": null}}, \
             \"age\": {{\"usec\": {usec}, \"aggr_intervals\": {age}}}}}",
            if i == 0 { "" } else { ", " },
            r.range.start,
            r.range.end,
            counts.nr_accesses(r)
        )?;
    }
    write!(out, "]}}")
}
