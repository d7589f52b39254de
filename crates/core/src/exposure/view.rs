//! Projects groups of windows to regions of a snapshot.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::counts::{Counts, Horizons, count, spans};
use super::piece::{Calm, Piece};
use super::published::PublishedRegion;
use super::timing::{ExposureTerms, Moment, READS};
use super::window::Window;
use crate::bins::{Bin, Mixture, first_touch_rate, misfit, touched_share};
use crate::borders::{GroupKind, WindowGroup, WindowPlace};
use crate::estimator::Rate;
use crate::range::PAGE_SIZE;
use crate::region::to_bp;
use crate::snapshot::RegionView;
use crate::support::RateSupport;
use crate::time::Nanos;
use crate::tuning::{NO_HEAT_HZ, PARTLY_TOUCHED_LLR, UNTOUCHED_LEVEL};
use crate::unknown::{Unknown, UnknownPages};

/// Exposures that began at most this many rounds ago describe the present.
const FRESH_ROUNDS: u32 = 9;
/// The same limit for a region that has kept its heat since then. Heat is noted up to one interval late,
/// because it is known only after a look.
const STEADY: u32 = 100;
const INTERVAL: u32 = 4;
/// A region without any look for this many rounds (two turns of the slowest region) is not covered.
const COVERED: u32 = 24;

/// Inputs for the figures of a region.
pub(super) struct ViewBasis {
    pub terms: ExposureTerms,
    pub now: Moment,
    pub round: Duration,
    pub sample: Duration,
    /// fraction of the pages that another party has cleared recently, as far as known
    pub externally_cleared_share: f64,
}

impl ViewBasis {
    fn ago(&self, time: Duration) -> Nanos {
        self.now.at.before(time)
    }

    /// The time limits within which exposures describe the present, for a region that was `before`.
    fn since(&self, before: Option<&PublishedRegion>) -> Horizons {
        let steady = before.filter(|k| k.hz > 0.0).map_or(Duration::ZERO, |k| k.age);
        let fresh = (steady + self.round * INTERVAL).min(self.round * STEADY);
        Horizons {
            fresh: self.ago(fresh.max(self.round * FRESH_ROUNDS)),
            covered: self.ago(self.round * COVERED),
            known: self.ago(self.round * STEADY),
        }
    }
}

/// A region, and the memory that it describes.
pub(super) struct Viewed {
    pub view: RegionView,
    /// visible bytes, and the bytes among them that the figures describe
    pub visible: u64,
    pub covered: u64,
    /// the heat that its windows store; `None` if no page is resident
    pub level: Option<Level>,
}

/// The view of a group as a region.
pub(super) fn project(
    group: &WindowGroup,
    pieces: &[Piece],
    before: Option<&PublishedRegion>,
    b: &ViewBasis,
) -> Viewed {
    let Some((from, to)) = group.windows.filter(|_| !matches!(group.kind, GroupKind::Absent))
    else {
        return absent(group);
    };
    let counts = count(pieces, (from, to), &b.since(before), &b.terms, b.now.ms);
    let pages = (group.range.len() / PAGE_SIZE).max(1) as f64;
    let unseen = counts.unknown[Unknown::Unseen.index()];
    let visible = counts.visible();
    let (rate, share) = estimate(&counts, before, b);
    let hz = f64::from(rate.hz);
    let level = Level::of(&rate, share, b.now.ms);
    let age = age(pieces, (from, to), &counts, &level);
    let resident = counts.resident as f64 / pages;
    let accessed = share * -(-hz * b.sample.as_secs_f64()).exp_m1() * resident;
    let view = RegionView {
        range: group.range,
        accesses_bp: to_bp(accessed).max(u32::from(hz > 0.0)),
        age,
        rate,
        touched_bp: if hz > 0.0 { to_bp(share).max(1) } else { 0 },
        resident_bp: to_bp(resident),
        unknown_bp: UnknownPages(counts.unknown.map(|n| to_bp(n as f64 / pages))),
        support: Some(RateSupport::of(counts.measured, counts.extended, visible)),
    };
    // Enough recently observed pages represent the whole region.
    let covered =
        if counts.covered as f64 >= ENOUGH_PAGES { visible } else { counts.covered.min(visible) };
    // Memory that was never cleared counts as visible: the monitor can observe it, and will.
    let (visible, covered) = ((visible + unseen) * PAGE_SIZE, covered * PAGE_SIZE);
    Viewed { view, visible, covered, level: Some(level) }
}

fn absent(group: &WindowGroup) -> Viewed {
    let view = RegionView {
        range: group.range,
        accesses_bp: 0,
        age: Duration::ZERO,
        rate: Rate { hz: 0.0, low: 0.0, high: 0.0 },
        touched_bp: 0,
        resident_bp: 0,
        unknown_bp: UnknownPages::default(),
        support: Some(RateSupport::MEASURED),
    };
    Viewed { view, visible: 0, covered: 0, level: None }
}

/// With fewer freshly cleared pages than this, the earlier rate remains in use.
const ENOUGH_PAGES: f64 = 8.0;
/// Once this fraction of the pages is touched, later reads describe only the slowest pages.
const MAX_TOUCHED_SHARE: f64 = 0.4;
/// With fewer touched pages than this, the interval includes a partly touched region at the lower limit
/// below.
const FEW_TOUCHED: f64 = 8.0;
const MAYBE_PARTLY_TOUCHED_LLR: f64 = 1.0;
/// Memory touched at least this often, in Hz, and untouched for less than its mean time between touches, is
/// presumed to be touched again.
const RECURS_HZ: f64 = 0.4;

/// Estimates the rate of the touched pages, and their share.
fn estimate(c: &Counts, before: Option<&PublishedRegion>, b: &ViewBasis) -> (Rate, f64) {
    let widen =
        |r: Rate| Rate { high: r.high / (1.0 - b.externally_cleared_share.min(0.9)) as f32, ..r };
    // If most pages look sudden, the remaining ones do not represent the region.
    if c.fresh_pages < ENOUGH_PAGES.max(c.sudden_pages) {
        let known = before.filter(|k| c.lately && k.hz > 0.0 && c.all.touched() > 0.0);
        let hz = || c.all.touched() / c.all.exposure().max(1e-9);
        let (hz, share) = known.map_or_else(|| (hz(), 1.0), |k| (k.hz, k.share));
        let rate = c.all.interval(hz);
        let sudden = c.sudden.interval(c.sudden.touched() / c.sudden.exposure().max(1e-9));
        let high = if c.sudden_pages > 0.0 { rate.high.max(sudden.high) } else { rate.high };
        return (widen(Rate { high, ..rate }), share);
    }
    let mut cut = c.bins;
    let total = c.bins.iter().map(|x| x.touched + x.survived).fold(0.0, f64::max);
    let mut touched = 0.0;
    let last = c.bins.iter().position(|x| {
        touched += x.touched;
        touched >= MAX_TOUCHED_SHARE * total
    });
    if let Some(last) = last {
        cut[last + 1..].fill(Bin::default());
    }
    let hz = first_touch_rate(&cut);
    let (d, e) = c.presumed;
    if hz <= 0.0 && d > 0.0 && c.extended > c.measured {
        // It was touched in one pass some time ago, and its samples are still untouched.
        return (widen(c.all.interval(d / e)), 1.0);
    }
    if hz <= 0.0 {
        // Memory that is touched once per second is still in use half a second after a touch.
        let was = c.all.touched() / c.all.exposure().max(1e-9);
        let untouched = f64::from(b.now.ms.saturating_sub(c.touched)) / 1e3;
        if was >= RECURS_HZ && untouched * was < 1.0 {
            return (widen(c.all.interval(was)), 1.0);
        }
        return (widen(c.fresh.interval(0.0)), 0.0);
    }
    // A few pages cannot show this clearly; but then little memory is concerned.
    let clearly = PARTLY_TOUCHED_LLR.min(4.0 + touched);
    // The interval must include the rates that the touched pages may mean.
    let perhaps = if touched < FEW_TOUCHED { MAYBE_PARTLY_TOUCHED_LLR } else { clearly };
    // Computing the share is expensive: only if a single rate explains the data poorly.
    let misfit = misfit(&c.bins, hz);
    let mixture = if misfit > perhaps { touched_share(&c.bins) } else { None };
    let mixture = mixture.filter(|m| m.gain > perhaps && m.share < 0.9);
    let together = are_together(&c.bins, misfit - mixture.map_or(0.0, |m| m.gain));
    let or_of_runs = |hz, rate: Rate| {
        let runs = c.fresh.interval_of_runs(hz, &c.runs);
        if together { runs } else { rate }
    };
    let of_part = |m: Mixture| or_of_runs(m.hz, c.fresh.interval_of_part(m.hz, &c.runs));
    let part = mixture.map(|m| (m, bounded(of_part(m), &c.bins, m.share)));
    let all = bounded(or_of_runs(hz, c.fresh.interval(hz)), &c.bins, 1.0);
    match part {
        Some((m, rate)) if m.gain > clearly => (widen(rate), m.share),
        Some((_, rate)) => (widen(Rate { high: all.high.max(rate.high), ..all }), 1.0),
        None => (widen(all), 1.0),
    }
}

/// Whether pages were, or may have been, touched together in one pass. `unexplained` is the log-likelihood
/// (natural logarithm) that no rate explains. For independently touched pages it is below 0.1 per page; if
/// all pages are touched at one later read, it is 0.9. If the first read found most of the pages touched, the
/// pages were touched too early to distinguish both cases.
fn are_together(bins: &[Bin; READS], unexplained: f64) -> bool {
    let all: f64 = bins.iter().map(|b| b.touched).sum();
    let at_first = bins.first().map_or(0.0, |b| b.touched);
    at_first > 0.6 * all || unexplained > 0.25 * all
}

/// Widens the interval of a rate to no upper bound, and to a quarter of its lower bound, if the first read
/// found nearly all touched pages: the rate may be any higher one.
fn bounded(rate: Rate, bins: &[Bin; READS], share: f64) -> Rate {
    let first = bins.iter().find(|b| b.touched + b.survived > 0.0);
    match first {
        Some(b) if b.touched > 0.95 * share * (b.touched + b.survived) => {
            Rate { low: rate.low / 4.0, high: f32::INFINITY, ..rate }
        }
        _ => rate,
    }
}

/// Binary logarithm of a rate, rounded.
fn level(hz: f64) -> i8 {
    hz.max(NO_HEAT_HZ).log2().round() as i8
}

/// The heat of a region, as its windows store it.
#[derive(Debug, Clone)]
pub(super) struct Level {
    /// binary logarithm of its rate
    level: i8,
    /// levels that may be the same heat within the error
    same: RangeInclusive<i8>,
    is_touched: bool,
    is_hot: bool,
    /// present time in ms
    now: u32,
}

impl Level {
    fn of(rate: &Rate, share: f64, now: u32) -> Self {
        let hz = f64::from(rate.hz) * share;
        let at = level(hz);
        let least = level(f64::from(rate.low) * share).saturating_sub(1);
        let most = level(f64::from(rate.high) * share).saturating_add(1);
        let same = least.min(at)..=most.max(at);
        Level { level: at, same, is_touched: hz > 0.0, is_hot: hz > NO_HEAT_HZ, now }
    }

    /// Time since which a window has this heat, given the stored level. For a window without a stored level:
    /// now if the region is hot, else the time of the last touch.
    fn since(&self, noted: i8, kept: u32, touched: u32) -> u32 {
        match noted {
            UNTOUCHED_LEVEL if self.is_hot => self.now,
            UNTOUCHED_LEVEL => touched,
            _ if self.same.contains(&noted) => kept,
            _ => self.now,
        }
    }

    fn differs(&self, noted: i8) -> bool {
        noted == UNTOUCHED_LEVEL || noted.abs_diff(self.level) > 1
    }
}

/// The common state of a calm piece, if the range contains all of its windows.
fn calm(piece: &Piece, first: usize, end: usize) -> Option<Calm> {
    piece.calm().copied().filter(|_| (first, end) == (0, piece.nr_windows()))
}

/// Mean time for which the windows have kept their heat, weighted by bytes. If nothing was touched: the exact
/// time since the last touch.
fn age(
    pieces: &[Piece],
    (from, to): (WindowPlace, WindowPlace),
    c: &Counts,
    level: &Level,
) -> Duration {
    if !level.is_touched {
        let ms = c.read.unwrap_or(0).saturating_sub(c.touched);
        return Duration::from_millis(ms.into());
    }
    let (mut sum, mut bytes) = (0.0, 0.0);
    let mut add = |since: u32, len: u64| {
        sum += f64::from(level.now.saturating_sub(since)) * len as f64;
        bytes += len as f64;
    };
    for (p, first, end) in spans(pieces, from, to) {
        let piece = &pieces[p];
        match calm(piece, first, end) {
            Some(c) => add(level.since(c.level, c.kept, c.touched.1), piece.range.len()),
            None => piece.heats(first..end).for_each(|(w, len)| {
                add(level.since(w.level, w.kept, w.touched), len);
            }),
        }
    }
    Duration::from_millis((sum / f64::max(bytes, 1.0)) as u64)
}

/// Stores the heat of the view in the windows of its group.
pub(super) fn update_ages(group: &WindowGroup, pieces: &mut [Piece], level: &Level) {
    let Some((from, to)) = group.windows else { return };
    let places: Vec<_> = spans(pieces, from, to).collect();
    for (p, first, end) in places {
        let piece = &mut pieces[p];
        match calm(piece, first, end) {
            Some(c) if !level.differs(c.level) => {}
            Some(c) => piece.set_level(level.level, level.since(c.level, c.kept, c.touched.1)),
            None => piece.note_heat(first..end, |w: &mut Window| {
                if level.differs(w.level) {
                    w.kept = level.since(w.level, w.kept, w.touched);
                    w.level = level.level;
                }
            }),
        }
    }
}
