//! Makes snapshots of what was read.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, Cost, Mapping, MappingKind, Missing, Nanos, RateSupport, RegionView,
    Snapshot, TargetId, TargetView, UnknownPages, join_touching,
};

use super::Format;
use super::scale::Scale;
use super::series::{NO_AGE, Name, Region, Results, Series, Span};
use crate::damo::{IMPORTED, PRESUMED, SCHEME, target_name};
use crate::header::{RecordingHeader, TargetInfo};

/// Times above are those of the wall clock, in ns since 1970: this is September 2001. A machine's monotonic clock
/// begins with its start.
const WALL_CLOCK: u64 = 1_000_000_000_000_000_000;
/// Maximal age: a record has ages in ns.
const LONGEST_AGE: Duration = Duration::from_nanos(u64::MAX);
/// The name of memory whose mapping the file does not have.
const UNNAMED: &str = "unknown mapping";

pub(super) fn targets(results: &Results) -> Vec<TargetInfo> {
    let fact = |(i, series): (u32, &Series)| {
        let (pid, command) = match series.name {
            Name::Target(kdamond, context, id) => (None, target_name(kdamond, context, id)),
            Name::Pid(pid) => (Some(pid), format!("pid {pid}")),
            Name::Scheme(kdamond, context, scheme, target) => {
                let part = |name: &str, i: i64| {
                    if i < 0 { String::new() } else { format!(" {name} {i}") }
                };
                let parts = [("scheme", scheme), ("target", target)].map(|(name, i)| part(name, i));
                (None, format!("{SCHEME}{kdamond} context {context}{}", parts.concat()))
            }
        };
        TargetInfo { id: TargetId(i), pid, command }
    };
    (0..).zip(&results.series).map(fact).collect()
}

pub(super) fn facts(
    results: &Results,
    scales: &[Scale],
    format: Format,
    version: &str,
) -> RecordingHeader {
    let starts = results.series.iter().filter_map(|s| s.spans.first()?.start);
    let started = starts.min().unwrap_or(0);
    let attrs = scales.first().map_or_else(Attrs::default, |scale| scale.attrs);
    let note = match scales.iter().any(|s| s.presumed) {
        true => PRESUMED,
        false => IMPORTED,
    };
    let (host, kernel) = results.machine.clone().unwrap_or_default();
    RecordingHeader {
        host,
        kernel,
        started_unix_ms: if started > WALL_CLOCK { started / 1_000_000 } else { 0 },
        look: format!("DAMON, from {}", format.name()),
        note: note.to_owned(),
        // DAMON reports no residency.
        missing: Missing { ages: results.series.iter().any(Series::lacks_ages), residency: true },
        ..RecordingHeader::new(version, attrs, Nanos(started))
    }
}

/// Merges the results of all targets by their time.
pub(super) struct Assembler<'a> {
    targets: Vec<Target<'a>>,
    max_regions: u32,
    seq: u64,
    last_end: u64,
}

struct Target<'a> {
    id: TargetId,
    series: &'a Series,
    scale: Scale,
    /// number of the next result
    next: usize,
    mappings: Arc<Vec<Mapping>>,
    since: Since,
}

impl<'a> Assembler<'a> {
    pub fn new(results: &'a Results, scales: &[Scale]) -> Self {
        let target = |((id, series), scale): ((u32, &'a Series), &Scale)| Target {
            id: TargetId(id),
            series,
            scale: *scale,
            next: 0,
            mappings: Arc::default(),
            since: Since::default(),
        };
        let most = |s: &Series| (0..s.spans.len()).map(|i| s.regions(i).len()).max().unwrap_or(0);
        let all: usize = results.series.iter().map(most).sum();
        Assembler {
            targets: (0..).zip(&results.series).zip(scales).map(target).collect(),
            max_regions: u32::try_from(all).unwrap_or(u32::MAX).clamp(1000, 100_000),
            seq: 0,
            last_end: 0,
        }
    }
}

/// The results of a snapshot.
struct Step {
    start: u64,
    end: u64,
    attrs: Attrs,
    parts: Vec<Part>,
}

/// A result in a snapshot.
struct Part {
    /// number of its target in the assembler
    target: usize,
    /// number of the result
    result: usize,
    span: Span,
    attrs: Attrs,
    /// whether a later snapshot has it again
    again: bool,
}

impl Assembler<'_> {
    /// The results that end next. DAMON reports its targets one after the other, so that results which end
    /// within half an interval belong together. A result of a longer interval is in each snapshot of its time.
    fn step(&mut self) -> Option<Step> {
        let results = self.targets.iter().filter_map(Target::result);
        let (Span { end, .. }, attrs) = results.min_by_key(|(span, _)| span.end)?;
        let mut step = Step { start: end, end, attrs, parts: Vec::new() };
        for (i, target) in self.targets.iter_mut().enumerate() {
            let Some((span, of_result)) = target.result() else { continue };
            let start = span.start.unwrap_or(end);
            let later = Duration::from_nanos(span.end - end);
            let again = later > attrs.aggr.min(of_result.aggr) / 2;
            // Before that time, an earlier result is missing.
            if again && (start >= end || later > of_result.aggr * 3 / 2) {
                continue;
            }
            let part = Part { target: i, result: target.next, span, attrs: of_result, again };
            step.parts.push(part);
            if !again {
                step.start = step.start.min(start.max(self.last_end));
                target.next += 1;
            }
        }
        self.last_end = end;
        Some(step)
    }

    /// Whether results are in more than one snapshot so often that the snapshots have more than `most` views and
    /// regions that the file does not have.
    pub fn repeats(mut self, most: usize) -> bool {
        let mut left = most;
        while let Some(step) = self.step() {
            for part in step.parts.iter().filter(|part| part.again) {
                let Some(target) = self.targets.get(part.target) else { continue };
                let Some(rest) = left.checked_sub(1 + target.series.regions(part.result).len())
                else {
                    return true;
                };
                left = rest;
            }
        }
        false
    }
}

impl Iterator for Assembler<'_> {
    type Item = Snapshot;

    fn next(&mut self) -> Option<Snapshot> {
        let Step { start, end, attrs, parts } = self.step()?;
        let seq = self.seq;
        self.seq += 1;
        let view = |part: &Part| Some(self.targets.get_mut(part.target)?.view(part));
        Some(Snapshot {
            seq,
            start: Nanos(start),
            end: Nanos(end),
            attrs: Attrs { max_regions: self.max_regions, ..attrs },
            cost: Cost::default(),
            quality: None,
            targets: parts.iter().filter_map(view).collect(),
        })
    }
}

impl Target<'_> {
    /// The next result, and its intervals.
    fn result(&self) -> Option<(Span, Attrs)> {
        let span = *self.series.spans.get(self.next)?;
        Some((span, self.scale.attrs_of(span)))
    }

    fn view(&mut self, part: &Part) -> TargetView {
        let Part { result, span, attrs, .. } = part;
        let regions = self.series.regions(*result);
        let start = span.start.unwrap_or(span.end);
        if regions.iter().any(|r| r.age == NO_AGE) {
            self.since.next(regions, start);
        }
        let view = |(i, r): (usize, &Region)| RegionView {
            range: AddrRange::new(r.start, r.end),
            accesses_bp: self.scale.bp(r.nr_accesses),
            age: match r.age {
                NO_AGE => Duration::from_nanos(start.saturating_sub(self.since.of(i))),
                age => attrs.aggr.saturating_mul(age).min(LONGEST_AGE),
            },
            rate: self.scale.rate(r.nr_accesses, attrs),
            touched_bp: if r.nr_accesses > 0 { 10_000 } else { 0 },
            resident_bp: 10_000,
            unknown_bp: UnknownPages::default(),
            support: (!self.scale.presumed).then_some(RateSupport::MEASURED),
        };
        let views = regions.iter().enumerate().map(view).collect();
        self.map(regions);
        TargetView {
            id: self.id,
            ran: None,
            mappings: Arc::clone(&self.mappings),
            left_out: 0,
            dirty: None,
            regions: views,
            ages: None,
        }
    }

    /// The areas that the regions cover, since the file does not have the mappings.
    fn map(&mut self, regions: &[Region]) {
        let areas = join_touching(regions.iter().map(|r| AddrRange::new(r.start, r.end)));
        if !areas.iter().eq(self.mappings.iter().map(|m| &m.range)) {
            let kind = match self.series.name {
                Name::Scheme(_, _, _, -1) => MappingKind::Physical,
                _ => MappingKind::Anonymous,
            };
            let name: Arc<str> = UNNAMED.into();
            let of = |range| Mapping { range, kind, name: Arc::clone(&name), unknown: None };
            self.mappings = Arc::new(areas.into_iter().map(of).collect());
        }
    }
}

/// For how long memory has been touched, or not touched, as the results so far show. It replaces the ages that a
/// file does not have: the real ages are the same or greater.
#[derive(Debug, Default)]
struct Since {
    regions: Vec<Region>,
    /// for each region
    times: Vec<u64>,
}

impl Since {
    fn of(&self, region: usize) -> u64 {
        self.times.get(region).copied().unwrap_or(u64::MAX)
    }

    fn next(&mut self, regions: &[Region], start: u64) {
        let mut from = 0;
        let since = |r: &Region| {
            while self.regions.get(from).is_some_and(|before| before.end <= r.start) {
                from += 1;
            }
            let (mut covered, mut since) = (r.start, 0);
            for (before, time) in self.regions.iter().zip(&self.times).skip(from) {
                let same = (before.nr_accesses > 0) == (r.nr_accesses > 0);
                if before.start > covered || !same || covered >= r.end {
                    break;
                }
                (covered, since) = (before.end, since.max(*time));
            }
            if covered >= r.end { since } else { start }
        };
        self.times = regions.iter().map(since).collect();
        self.regions = regions.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{Presumed, damo_json};

    /// A target of 20 results of one interval, and one of a result of two regions over the same time.
    #[test]
    fn repeated_results_have_a_limit() {
        let result = |from: u64, to: u64, starts: &[u64]| {
            let region = |start: &u64| {
                format!(
                    r#"{{"start": {start}, "end": {}, "nr_accesses": {{"samples": 1}}}}"#,
                    start + 1
                )
            };
            let regions: Vec<String> = starts.iter().map(region).collect();
            let ns = |ms: u64| ms * 1_000_000;
            let times = format!(r#""start_time": {}, "end_time": {}"#, ns(from), ns(to));
            format!(r#"{{{times}, "regions": [{}]}}"#, regions.join(","))
        };
        let record = |target: u64, ms: u64, results: &[String]| {
            let intervals = format!(r#"{{"sample_us": {}, "aggr_us": {}}}"#, ms * 50, ms * 1000);
            let results = results.join(",");
            format!(
                r#"{{"intervals": {intervals}, "target_id": {target}, "snapshots": [{results}]}}"#
            )
        };
        let short: Vec<String> = (0..20).map(|i| result(i * 100, i * 100 + 100, &[4096])).collect();
        let long = [result(0, 2000, &[0, 4096])];
        let text = format!("[{},{}]", record(0, 100, &short), record(1, 2000, &long));
        let mut results = damo_json::read(text.as_bytes()).unwrap();
        let scale = |s: &mut Series| Scale::of(s, Presumed::default()).unwrap();
        let scales: Vec<Scale> = results.series.iter_mut().map(scale).collect();
        let assembler = || Assembler::new(&results, &scales);
        assert!(assembler().all(|s| s.targets.len() == 2));
        // a view and two regions, in 19 snapshots
        assert!(assembler().repeats(19 * 3 - 1) && !assembler().repeats(19 * 3));
    }
}
