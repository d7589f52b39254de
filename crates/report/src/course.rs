//! A quantity over a record: its distribution, and its values over time.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

use crate::basis::Basis;
use crate::columns::column_shares;
use crate::distribution::{Distribution, Percentile};
use crate::timeline::{Timeline, TimelinePoint};

/// Maximum number of snapshots for exact percentiles: 4.8 days at one per 400 ms, in 16 MiB.
pub(crate) const EXACT_SNAPSHOTS: usize = 1 << 20;

/// A quantity that has one value per snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Course {
    /// mean over the time
    pub mean: u64,
    /// percentiles over time, as requested
    pub percentiles: Vec<Percentile>,
    /// Whether the percentiles are exact: they are for up to about a million different values. Beyond that,
    /// they are too large by less than 0.1 %.
    pub exact: bool,
    /// values in order of time
    pub over_time: Vec<TimelinePoint>,
    /// percentiles 0, 1, ... 100, for pictures
    #[serde(skip)]
    pub curve: Vec<u64>,
}

/// Makes a [`Course`].
#[derive(Debug, Clone)]
pub(crate) struct CourseTally {
    distribution: Distribution,
    timeline: Timeline,
}

impl CourseTally {
    pub(crate) fn new() -> Self {
        CourseTally { distribution: Distribution::new(EXACT_SNAPSHOTS), timeline: Timeline::new() }
    }

    /// Adds the value of a snapshot.
    pub(crate) fn push(&mut self, time: &Range<Duration>, value: u64) {
        self.distribution.push(value, (time.end - time.start).as_secs_f64());
        self.timeline.push(time, value);
    }

    pub(crate) fn course(mut self, percents: &[f64]) -> Course {
        let whole: Vec<f64> = (0..=100).map(f64::from).collect();
        let curve = self.distribution.percentiles(&whole).iter().map(|p| p.value).collect();
        Course {
            mean: self.distribution.mean().round() as u64,
            percentiles: self.distribution.percentiles(percents),
            exact: self.distribution.is_exact(),
            over_time: self.timeline.points(),
            curve,
        }
    }
}

impl Course {
    /// The maximum value.
    pub(crate) fn max(&self) -> u64 {
        self.curve.last().copied().unwrap_or(0)
    }

    /// The values in `n` columns; `None` for a column without a snapshot.
    pub(crate) fn columns(&self, basis: &Basis, n: usize) -> Vec<Option<CourseColumn>> {
        let at = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
        let time = at(basis.from_ms)..at(basis.to_ms);
        let mut sums = vec![(0.0, 0.0, 0); n];
        for p in &self.over_time {
            for (i, seconds) in column_shares(&(at(p.from_ms)..at(p.to_ms)), &time, n) {
                let (weighed, weight, max) = &mut sums[i];
                *weighed += p.mean * f64::from(seconds);
                *weight += f64::from(seconds);
                *max = p.max.max(*max);
            }
        }
        let column = |(weighed, weight, max): (f64, f64, u64)| {
            (weight > 0.0).then(|| CourseColumn { mean: weighed / weight, max: max as f64 })
        };
        sums.into_iter().map(column).collect()
    }
}

/// The values in one column of a picture or in one line of text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CourseColumn {
    pub mean: f64,
    pub max: f64,
}
