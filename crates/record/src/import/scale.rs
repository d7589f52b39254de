//! What the counts of a recording mean: its intervals, as far as the file has them.

use std::time::Duration;

use isotherm_core::{Attrs, AttrsError, MonitorKind, PAGE_SIZE, Rate, rate};

use super::series::{Series, Span};
use super::{IntervalError, Presumed};

/// Sampling intervals per aggregation interval, unless the file says otherwise: the default of damo and of the
/// kernel, 5 ms and 100 ms.
const SAMPLES: u32 = 20;
/// Minimal number of regions that DAMON is asked for by default.
const MIN_REGIONS: u32 = 10;
/// Aggregation interval of a recording of one snapshot that does not say when it began: DAMON's default.
pub(super) const AGGR: Duration = Duration::from_millis(100);
const MIN_INTERVAL: Duration = Duration::from_micros(100);
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Why a series has no scale.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScaleError {
    /// a given interval is not possible
    #[error(transparent)]
    Interval(#[from] IntervalError),
    /// an interval of the file is not possible
    #[error(transparent)]
    Attrs(#[from] AttrsError),
}

/// Fails if an interval is given that differs from that of the file, in us; 0 if the file does not have it.
fn not_stated(
    name: &'static str,
    option: &'static str,
    given: Option<Duration>,
    of_file: u64,
) -> Result<(), IntervalError> {
    let stated = Duration::from_micros(of_file);
    match given {
        Some(given) if of_file > 0 && given != stated => {
            Err(IntervalError::Stated { name, option, given, stated })
        }
        _ => Ok(()),
    }
}

/// Fails if an interval is given that is not from `least` to `most`.
fn within(
    option: &'static str,
    given: Option<Duration>,
    least: Duration,
    most: Duration,
) -> Result<(), IntervalError> {
    match given {
        Some(given) if given < least || given > most => {
            Err(IntervalError::Range { option, given, least, most })
        }
        _ => Ok(()),
    }
}

/// `time`, multiplied by `by` and divided by `per`.
fn scaled(time: Duration, by: Duration, per: Duration) -> Duration {
    let ns = time.as_nanos().saturating_mul(by.as_nanos()) / per.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The meaning of the counts of one target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    /// sampling intervals per aggregation interval
    pub samples: u32,
    pub attrs: Attrs,
    /// whether the sampling interval is presumed
    pub presumed: bool,
    /// limits of the sampling interval in us, if DAMON tunes the intervals
    goal: Option<(u64, u64)>,
}

impl Scale {
    /// Completes a series and finds its scale.
    pub fn of(series: &mut Series, presumed: Presumed) -> Result<Self, ScaleError> {
        let of_file = series.intervals;
        not_stated("aggregation", "--aggr", presumed.aggr, of_file.aggr)?;
        not_stated("sampling", "--sample", presumed.sample, of_file.sample)?;
        within("--aggr", presumed.aggr, MIN_INTERVAL * 2, MAX_INTERVAL)?;
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        if of_file.aggr == 0 {
            series.intervals.aggr = presumed.aggr.map_or(0, micros);
        }
        let mean = series.complete().map_or(AGGR, Duration::from_nanos);
        let known = |us: u64| (us > 0).then(|| Duration::from_micros(us));
        let aggr =
            known(series.intervals.aggr).unwrap_or(mean).clamp(MIN_INTERVAL * 2, MAX_INTERVAL);
        within("--sample", presumed.sample, MIN_INTERVAL, aggr / 2)?;
        let sample = known(of_file.sample).or(presumed.sample);
        let most = series.most_accesses();
        let samples = match sample {
            Some(sample) => (aggr.as_nanos() / sample.as_nanos().max(1)).max(2),
            None => SAMPLES.into(),
        };
        let samples = u32::try_from(samples).unwrap_or(u32::MAX).max(most);
        let mut attrs = Attrs {
            sample: sample.unwrap_or(aggr / samples).max(MIN_INTERVAL),
            aggr,
            update: known(of_file.update)
                .unwrap_or(Duration::from_secs(1))
                .clamp(MIN_INTERVAL, MAX_INTERVAL),
            min_regions: MIN_REGIONS,
            max_regions: 1000,
            min_region_size: PAGE_SIZE,
            window: PAGE_SIZE,
            monitor: MonitorKind::Regions,
            clear_every: 1,
            ..Attrs::default()
        };
        attrs.aggr = attrs.aggr.max(attrs.sample * 2);
        let (attrs, presumed) = (attrs.checked()?, sample.is_none());
        Ok(Scale { samples, attrs, presumed, goal: of_file.goal })
    }

    /// The attributes with the intervals of a result. DAMON tunes both intervals by the same factor. If the file does
    /// not have the tuned ones, they follow from the length of the result, except for a difference below a tenth.
    pub fn attrs_of(&self, span: Span) -> Attrs {
        let Attrs { sample, aggr, .. } = self.attrs;
        let len = Duration::from_nanos(span.end.saturating_sub(span.start.unwrap_or(span.end)));
        let tuned = match (span.sample_us, self.goal) {
            (0, None) => return self.attrs,
            (0, Some(_)) if len.abs_diff(aggr) < aggr / 10 => return self.attrs,
            (0, Some((least, most))) => {
                let us = Duration::from_micros;
                scaled(sample, len, aggr).max(us(least)).min(us(most))
            }
            (us, _) => Duration::from_micros(us.into()),
        };
        let tuned = tuned.max(MIN_INTERVAL).min(scaled(sample, MAX_INTERVAL, aggr));
        Attrs { sample: tuned, aggr: scaled(aggr, tuned, sample), ..self.attrs }
    }

    /// The share of sampling intervals in which a region was found accessed, in basis points. Any access counts.
    pub fn bp(&self, nr_accesses: u32) -> u32 {
        let bp = (u64::from(nr_accesses) * 20_000 / u64::from(self.samples)).div_ceil(2);
        u32::try_from(bp).unwrap_or(10_000).clamp(u32::from(nr_accesses > 0), 10_000)
    }

    /// The rate of a region. If the sampling interval is presumed, only a lower bound is known: as many
    /// accesses as were counted.
    pub fn rate(&self, nr_accesses: u32, attrs: &Attrs) -> Rate {
        let (nr, looks) = (f64::from(nr_accesses), f64::from(self.samples));
        let rate = rate(nr, looks, self.samples.into(), attrs.sample);
        if !self.presumed {
            return rate;
        }
        let least = (nr / attrs.aggr.as_secs_f64()) as f32;
        Rate { low: rate.low.min(least).min(rate.hz), high: f32::INFINITY, ..rate }
    }
}
