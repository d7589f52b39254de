//! First pass: determines the time and the areas.

use std::collections::BTreeMap;

use isotherm_core::{AddrRange, Heat, RegionView, Snapshot, TargetId, Thresholds};

use crate::basis::BasisTally;
use crate::filter::{FilterError, Gate, Options};
use crate::names::{NO_MAPPING, NameIndex};
use crate::pieces::each_piece;

/// Maximum number of targets with spans. A limit, because records come from outside.
const MAX_TARGETS: usize = 1 << 14;

/// Maximum number of spans of each of so many targets: from 1024 for up to 256 targets to 16 for [`MAX_TARGETS`].
fn max_spans(targets: usize) -> usize {
    (1 << 18) / targets.clamp(1 << 8, MAX_TARGETS)
}

/// Collects the time and the memory that a heat map shows.
#[derive(Debug)]
pub struct Extent {
    pub(super) options: Options,
    pub(super) gate: Gate,
    pub(super) names: NameIndex,
    pub(super) targets: BTreeMap<TargetId, Spans>,
    pub(super) tally: BasisTally,
    pub(super) beyond: Beyond,
}

/// The memory of targets beyond the maximum number, in bytes times seconds.
#[derive(Debug, Default)]
pub(super) struct Beyond {
    /// the most of them in a snapshot
    pub targets: usize,
    pub resident: f64,
    pub hot: f64,
}

impl Extent {
    /// An extent without snapshots.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Extent {
            gate: Gate::new(options.filter.clone()),
            options,
            names: NameIndex::new(),
            targets: BTreeMap::new(),
            tally: BasisTally::default(),
            beyond: Beyond::default(),
        }
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Snapshot) {
        let Some(part) = self.gate.admit(s) else { return };
        let seconds = (part.end - part.start).as_secs_f64();
        self.tally.begin(seconds);
        let mut beyond = 0;
        let max_spans = max_spans(self.targets.len().max(self.options.filter.views(s).count()));
        for view in self.options.filter.views(s) {
            let has_room = self.targets.len() < MAX_TARGETS || self.targets.contains_key(&view.id);
            let ids = self.names.of(view);
            let mut spans = has_room.then(|| self.targets.entry(view.id).or_default());
            beyond += usize::from(spans.is_none());
            each_piece(view, self.options.filter.clip(), |piece, mapping| {
                let [resident, unknown, hot] =
                    weights(piece, &self.options.thresholds).map(|bytes| bytes * seconds);
                self.tally.add(resident, unknown);
                match &mut spans {
                    Some(spans) if resident > 0.0 => {
                        let name = mapping.and_then(|i| ids.get(i)).unwrap_or(&NO_MAPPING);
                        let span = spans.at(piece.range, max_spans);
                        span.hot += hot;
                        *span.names.entry(*name).or_default() += resident;
                    }
                    Some(_) => {}
                    None => {
                        self.beyond.resident += resident;
                        self.beyond.hot += hot;
                    }
                }
            });
        }
        self.beyond.targets = self.beyond.targets.max(beyond);
    }

    pub(super) fn no_memory(&self) -> FilterError {
        self.gate.no_memory()
    }
}

/// Resident, unknown and hot bytes, without rounding to pages, because this runs for every region of a record.
fn weights(r: &RegionView, t: &Thresholds) -> [f64; 3] {
    let bytes = |bp: f64| r.range.len() as f64 * bp / 1e4;
    let resident = f64::from(r.resident_bp.min(10_000));
    let unknown = (r.unknown_bp.total() as f64).min(resident);
    let hot = if r.heat(t) == Heat::Hot { bytes(resident - unknown) } else { 0.0 };
    [bytes(resident), bytes(unknown), hot]
}

/// Addresses that were resident at some time, in ascending order; no two spans are adjacent.
#[derive(Debug, Default)]
pub(super) struct Spans(pub Vec<Span>);

/// The memory in a span of addresses, in bytes times seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Span {
    pub range: AddrRange,
    pub hot: f64,
    /// resident memory by index of the mapping's name
    pub names: BTreeMap<usize, f64>,
}

impl Span {
    pub(super) fn resident(&self) -> f64 {
        self.names.values().sum()
    }

    pub(super) fn absorb(&mut self, o: Span) {
        self.range =
            AddrRange::new(self.range.start.min(o.range.start), self.range.end.max(o.range.end));
        self.hot += o.hot;
        for (name, resident) in o.names {
            *self.names.entry(name).or_default() += resident;
        }
    }
}

impl Spans {
    /// The span that contains `range`, after merging the spans that `range` overlaps or adjoins. There are at most `max`
    /// spans.
    fn at(&mut self, range: AddrRange, max: usize) -> &mut Span {
        while self.0.len() >= max {
            self.close_gaps();
        }
        let from = self.0.partition_point(|s| s.range.end < range.start);
        let to = self.0.partition_point(|s| s.range.start <= range.end).max(from);
        let mut merged = Span { range, ..Span::default() };
        if to - from == 1 {
            self.0[from].absorb(merged);
        } else {
            self.0.drain(from..to).for_each(|s| merged.absorb(s));
            self.0.insert(from, merged);
        }
        &mut self.0[from]
    }

    /// Merges spans across the smaller half of all gaps.
    fn close_gaps(&mut self) {
        let gap = |a: &Span, b: &Span| b.range.start.saturating_sub(a.range.end);
        let mut gaps: Vec<u64> = self.0.windows(2).map(|w| gap(&w[0], &w[1])).collect();
        let middle = gaps.len() / 2;
        let limit = *gaps.select_nth_unstable(middle).1;
        self.0 = join(std::mem::take(&mut self.0), |a, b| gap(a, b) <= limit);
    }
}

/// Merges each span with the previous one if `near` returns true.
pub(super) fn join(spans: Vec<Span>, near: impl Fn(&Span, &Span) -> bool) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::new();
    for span in spans {
        match out.last_mut() {
            Some(last) if near(last, &span) => last.absorb(span),
            _ => out.push(span),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_that_touch_become_one() {
        let mut spans = Spans::default();
        for (start, end) in [(0x5000, 0x6000), (0x1000, 0x2000), (0x3000, 0x4000), (0x2000, 0x3000)]
        {
            spans.at(AddrRange::new(start, end), 16).hot += 1.0;
        }
        let all: Vec<_> = spans.0.iter().map(|s| (s.range.start, s.range.end, s.hot)).collect();
        assert_eq!(all, [(0x1000, 0x4000, 3.0), (0x5000, 0x6000, 1.0)]);
    }

    proptest! {
        #[test]
        fn spans_are_sorted_apart_and_few(ranges in prop::collection::vec((0u64..1 << 30, 1u64..1 << 16), 1..3000), max in 16usize..=1024) {
            let mut spans = Spans::default();
            for &(start, len) in &ranges {
                spans.at(AddrRange::new(start, start + len), max).hot += 1.0;
            }
            prop_assert!(spans.0.len() <= max);
            prop_assert!(spans.0.windows(2).all(|w| w[0].range.end < w[1].range.start));
            prop_assert_eq!(spans.0.iter().map(|s| s.hot).sum::<f64>(), ranges.len() as f64);
            for &(start, len) in &ranges {
                prop_assert!(spans.0.iter().any(|s| s.range.start <= start && start + len <= s.range.end));
            }
        }
    }
}
