//! Memory limits: the working set, and the memory that is touched again after it was idle.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::{AgeCurve, HeatBytes, RegionView, Thresholds, kept_together, together};

use super::history::ReturnedBytes;
use super::idle::{Ladder, RegionBlockState};
use super::rows::{IdleRow, Sizing};
use crate::basis::ms;
use crate::distribution::Distribution;

/// Maximum number of different working-set sizes per target for exact percentiles.
pub(super) const SIZES: usize = 1 << 14;
const MIB: u64 = 1 << 20;

/// The parameters of sizing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) length: Duration,
    pub(super) hot_hz: f64,
}

impl Window {
    pub(super) fn bytes(&self, r: &RegionView) -> HeatBytes {
        r.bytes(&Thresholds { hot_hz: self.hot_hz, cold_age: self.length })
    }
}

/// A target in a snapshot.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    bytes: HeatBytes,
    /// idle bytes for each idle time of the ladder
    idle: Vec<f64>,
    returned: Vec<f64>,
}

impl Moment {
    pub(super) fn new(ladder: &Ladder) -> Self {
        let none = vec![0.0; ladder.steps().len()];
        Moment { bytes: HeatBytes::default(), idle: none.clone(), returned: none }
    }

    pub(super) fn resident(&self) -> u64 {
        self.bytes.resident()
    }

    pub(super) fn region(&mut self, bytes: HeatBytes, fact: &RegionBlockState, length: u64) {
        self.bytes += bytes;
        for sum in self.idle.iter_mut().take(fact.level) {
            *sum += fact.seen * length as f64;
        }
    }

    pub(super) fn returned(&mut self, back: &ReturnedBytes) {
        for sum in self.returned.iter_mut().take(back.level) {
            *sum += back.bytes;
        }
    }

    pub(super) fn add(&mut self, other: &Moment) {
        self.bytes += other.bytes;
        let add = |to: &mut [f64], of: &[f64]| to.iter_mut().zip(of).for_each(|(a, b)| *a += b);
        add(&mut self.idle, &other.idle);
        add(&mut self.returned, &other.returned);
    }
}

/// Sums over one target, or over all.
#[derive(Debug)]
pub(super) struct SizingTally {
    begin: Duration,
    needed: Distribution,
    measured: Duration,
    last: HeatBytes,
    /// for each idle time of the ladder, the time during which memory can have reached it
    seconds: Vec<f64>,
    idle: Vec<f64>,
    returned: Vec<f64>,
}

impl SizingTally {
    /// A tally of memory that exists from `begin` on.
    pub(super) fn new(begin: Duration, ladder: &Ladder) -> Self {
        let none = vec![0.0; ladder.steps().len()];
        SizingTally {
            begin,
            needed: Distribution::new(SIZES),
            measured: Duration::ZERO,
            last: HeatBytes::default(),
            seconds: none.clone(),
            idle: none.clone(),
            returned: none,
        }
    }

    pub(super) fn push(
        &mut self,
        time: &Range<Duration>,
        now: &Moment,
        window: &Window,
        ladder: &Ladder,
    ) {
        let (there, length) = (time.end.saturating_sub(self.begin), time.end - time.start);
        self.last = now.bytes;
        if there > window.length {
            self.needed.push(now.bytes.working_set() + now.bytes.unknown, length.as_secs_f64());
            self.measured += length;
        }
        for i in 0..ladder.level(there) {
            self.seconds[i] += length.as_secs_f64();
            self.idle[i] += now.idle[i] * length.as_secs_f64();
            self.returned[i] += now.returned[i];
        }
    }

    pub(super) fn sizing(
        mut self,
        (target, label): (Option<u32>, String),
        window: &Window,
        headroom_percent: f64,
        ladder: &Ladder,
    ) -> Sizing {
        let [p50, p95, max] = [50.0, 95.0, 100.0].map(|p| self.needed.percentile(p));
        let known = !self.measured.is_zero();
        let limit = |needed: u64| known.then(|| with_headroom(needed, headroom_percent));
        let idle: Vec<IdleRow> =
            (0..ladder.steps().len()).filter_map(|i| self.row(i, ladder)).collect();
        let at_window = idle.iter().find(|r| r.idle_ms >= ms(window.length));
        Sizing {
            target,
            label,
            window_ms: ms(window.length),
            measured_ms: ms(self.measured),
            resident_bytes: Some(self.last.resident()),
            unknown_bytes: self.last.unknown,
            by_page_ages: false,
            without_ages_bytes: 0,
            needed_p50_bytes: p50,
            needed_p95_bytes: p95,
            needed_max_bytes: max,
            headroom_percent,
            memory_high_bytes: limit(p95),
            memory_max_bytes: limit(max),
            returned_bytes_per_min: at_window.map_or(0.0, |r| r.returned_bytes_per_min),
            idle,
        }
    }

    fn row(&self, i: usize, ladder: &Ladder) -> Option<IdleRow> {
        let (seconds, step) = (*self.seconds.get(i)?, ladder.steps().get(i)?);
        (seconds > 0.0).then(|| IdleRow {
            idle_ms: ms(*step),
            idle_bytes: (self.idle[i] / seconds).round() as u64,
            returned_bytes_per_min: self.returned[i] / seconds * 60.0,
        })
    }
}

/// Whether these idle ages say which memory was touched within `window` s.
pub(super) fn is_known(curve: &AgeCurve, window: f64) -> bool {
    !curve.is_empty() && curve.longest() >= window
}

/// The figures of `sizing` by idle ages of pages, if these are known. A region in which a single page is touched is
/// not idle, but most of its pages may be. All of `rest` counts as needed: resident memory of targets without such
/// ages.
pub(super) fn by_ages(sizing: Sizing, curves: &[&AgeCurve], mut rest: Distribution) -> Sizing {
    let window = sizing.window_ms / 1e3;
    if curves.is_empty() || !curves.iter().all(|curve| is_known(curve, window)) {
        return sizing;
    }
    let longest = curves.iter().map(|c| c.longest()).fold(f64::INFINITY, f64::min);
    let mut needed = Distribution::new(SIZES);
    let spans = kept_together(curves.iter().copied(), window).into_iter();
    spans.for_each(|(seconds, bytes)| needed.push(bytes, seconds));
    let row = |age: f64| {
        let beyond = together(curves.iter().copied(), age);
        IdleRow {
            idle_ms: age * 1e3,
            idle_bytes: beyond.idle.round() as u64,
            returned_bytes_per_min: beyond.returned * 60.0,
        }
    };
    let ages = sizing.idle.iter().map(|r| r.idle_ms / 1e3).filter(|age| *age <= longest);
    let limit =
        |old: Option<u64>, needed| old.map(|_| with_headroom(needed, sizing.headroom_percent));
    let [p50, p95, max] =
        [50.0, 95.0, 100.0].map(|percent| needed.percentile(percent) + rest.percentile(percent));
    Sizing {
        by_page_ages: true,
        without_ages_bytes: rest.percentile(100.0),
        needed_p50_bytes: p50,
        needed_p95_bytes: p95,
        needed_max_bytes: max,
        memory_high_bytes: limit(sizing.memory_high_bytes, p95),
        memory_max_bytes: limit(sizing.memory_max_bytes, max),
        returned_bytes_per_min: row(window).returned_bytes_per_min,
        idle: ages.map(row).collect(),
        ..sizing
    }
}

/// Adds the margin and rounds up to the next MiB.
fn with_headroom(needed: u64, percent: f64) -> u64 {
    let wanted = needed as f64 * (1.0 + percent / 100.0);
    ((wanted / MIB as f64 - 1e-9).ceil() as u64).saturating_mul(MIB)
}
