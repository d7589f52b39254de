//! The true heat of memory: hot, warm, cold, or undecided.

use isotherm_core::{Heat, Nanos, Thresholds};

use crate::ground_truth::{GroundTruth, IntervalTruth};

/// A rate is decided to be hot or not if it differs from the threshold by at least this factor. Memory that is not
/// decided counts neither as right nor as wrong.
pub(crate) const DECISION_FACTOR: f64 = 1.5;
/// A stretch with at most this share of idle pages is not cold; one with at most this share of pages that are
/// not idle is cold.
const MIXED: f64 = 0.1;

/// A share of the pages of a stretch that have the same access pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PatternShare {
    /// from 0 to 1
    pub share: f64,
    /// mean touches per page and second
    pub hz: f64,
    kind: Kind,
}

impl PatternShare {
    /// Whether it has this heat; `None` if undecided.
    pub fn is(&self, heat: Heat) -> Option<bool> {
        self.kind.is(heat)
    }
}

/// The decided properties.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kind {
    hot: Option<bool>,
    cold: Option<bool>,
}

impl Kind {
    /// For pages touched at `hz`, with a share `idle` of idle pages.
    fn new(hz: f64, idle: f64) -> Self {
        let border = Thresholds::default().hot_hz;
        let hot = decided(hz, border / DECISION_FACTOR, border * DECISION_FACTOR);
        let cold = decided(idle, MIXED, 1.0 - MIXED);
        Kind { hot, cold: if hot == Some(true) { Some(false) } else { cold } }
    }

    pub fn is(self, heat: Heat) -> Option<bool> {
        match (heat, self.hot, self.cold) {
            (Heat::Hot, hot, _) => hot,
            (Heat::Cold, _, cold) => cold,
            (Heat::Warm, Some(true), _) | (Heat::Warm, _, Some(true)) => Some(false),
            (Heat::Warm, Some(false), Some(false)) => Some(true),
            (Heat::Warm, ..) => None,
        }
    }

    /// Its heat, if it is decided.
    pub fn heat(self) -> Option<Heat> {
        [Heat::Hot, Heat::Warm, Heat::Cold].into_iter().find(|&h| self.is(h) == Some(true))
    }

    /// The properties that are decided in both.
    fn and(self, other: Kind) -> Kind {
        let both = |a: Option<bool>, b| a.filter(|_| a == b);
        Kind { hot: both(self.hot, other.hot), cold: both(self.cold, other.cold) }
    }
}

/// False up to `low`, true from `high` on, undecided between.
fn decided(x: f64, low: f64, high: f64) -> Option<bool> {
    if x <= low { Some(false) } else { (x >= high).then_some(true) }
}

/// The pieces of each stretch between two times; `None` if the truth does not cover all of that time.
pub(crate) fn pieces(
    truth: &GroundTruth,
    from: Nanos,
    to: Nanos,
) -> Option<Vec<Vec<PatternShare>>> {
    let intervals = truth.intervals_in(from, to);
    let (first, last) = (intervals.first()?, intervals.last()?);
    if first.start() > from || last.end() < to {
        return None;
    }
    let of = |i| pieces_of(truth, i, intervals, (from, to));
    Some((0..truth.stretches.len()).map(of).collect())
}

/// The pages that may be touched, and the pages between them.
fn pieces_of(
    truth: &GroundTruth,
    i: usize,
    intervals: &[IntervalTruth],
    (from, to): (Nanos, Nanos),
) -> Vec<PatternShare> {
    let pages = truth.stretches[i].pages() as f64;
    let kinds = intervals.iter().map(|v| kind(truth, i, v));
    let Some(kind) = kinds.reduce(Kind::and) else { return Vec::new() };
    let touches: f64 = intervals.iter().map(|v| touches_within(v, i, from, to)).sum();
    let hz = touches / pages / to.since(from).as_secs_f64();
    let share = pages * isotherm_core::PAGE_SIZE as f64 / truth.stretches[i].range().len() as f64;
    let since = to.0.saturating_sub(truth.populated_ns);
    let idle = if since >= truth.idle_ns { 1.0 } else { 0.0 };
    let between = PatternShare { share: 1.0 - share, hz: 0.0, kind: Kind::new(0.0, idle) };
    let touched = PatternShare { share, hz, kind };
    [touched, between].into_iter().filter(|p| p.share > 0.0).collect()
}

/// The kind of the touched pages of a stretch in an interval: by the mean rate, and by the share that is idle
/// at its end.
pub(crate) fn kind(truth: &GroundTruth, i: usize, v: &IntervalTruth) -> Kind {
    let pages = truth.stretches[i].pages() as f64;
    let seconds = v.end().since(v.start()).as_secs_f64();
    Kind::new(v.touches[i] as f64 / pages / seconds, v.idle[i] as f64 / pages)
}

/// Touches between two times within an interval, assuming that touches are evenly distributed.
fn touches_within(v: &IntervalTruth, i: usize, from: Nanos, to: Nanos) -> f64 {
    let part = v.end().min(to).since(v.start().max(from)).as_secs_f64();
    v.touches[i] as f64 * part / v.end().since(v.start()).as_secs_f64()
}
