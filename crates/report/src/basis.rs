//! What figures rest on. Every report says it.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::HeatBytes;
use serde::Serialize;

use crate::filter::{Gap, Options};

/// Which part of a record was looked at, what is called hot and cold, and how much nobody knows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Basis {
    /// since the recording began
    pub from_ms: f64,
    /// since the recording began
    pub to_ms: f64,
    /// within that time
    pub snapshots: u64,
    /// hot from this rate on
    pub hot_hz: f64,
    /// cold from this long untouched on
    pub cold_ms: f64,
    /// how accesses were looked at; empty if the record does not say
    pub look: String,
    /// mean over the time
    pub resident_bytes: u64,
    /// of the resident ones those whose accesses cannot be seen, mean over the time
    pub unknown_bytes: u64,
    /// within that time, where a damaged record has nothing to show
    pub gaps: Vec<GapFigures>,
}

/// A part of a record that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GapFigures {
    /// since the recording began
    pub from_ms: f64,
    /// since the recording began
    pub to_ms: f64,
    /// that are missing, as far as it is known
    pub snapshots: u64,
}

/// The gaps that lie in this time, as figures.
pub(crate) fn gaps(options: &Options, time: &Range<Duration>) -> Vec<GapFigures> {
    let inside = |g: &&Gap| g.time.start <= time.end && g.time.end >= time.start;
    let figures = |g: &Gap| GapFigures {
        from_ms: ms(g.time.start),
        to_ms: ms(g.time.end),
        snapshots: g.snapshots,
    };
    options.gaps.iter().filter(inside).map(figures).collect()
}

/// Sums on the way to a [`Basis`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BasisTally {
    pub seconds: f64,
    snapshots: u64,
    resident: f64,
    unknown: f64,
}

impl BasisTally {
    /// A snapshot of this length.
    pub(crate) fn begin(&mut self, seconds: f64) {
        self.seconds += seconds;
        self.snapshots += 1;
    }

    /// Memory in a snapshot, in bytes times seconds.
    pub(crate) fn add(&mut self, resident: f64, unknown: f64) {
        self.resident += resident;
        self.unknown += unknown;
    }

    /// All memory of a snapshot.
    pub(crate) fn whole(&mut self, bytes: &HeatBytes, seconds: f64) {
        self.begin(seconds);
        self.add(bytes.resident() as f64 * seconds, bytes.unknown as f64 * seconds);
    }

    pub(crate) fn basis(&self, options: &Options, time: &Range<Duration>) -> Basis {
        let mean = |sum: f64| (sum / self.seconds.max(f64::MIN_POSITIVE)).round() as u64;
        Basis {
            from_ms: ms(time.start),
            to_ms: ms(time.end),
            snapshots: self.snapshots,
            hot_hz: options.thresholds.hot_hz,
            cold_ms: ms(options.thresholds.cold_age),
            look: options.look.clone(),
            resident_bytes: mean(self.resident),
            unknown_bytes: mean(self.unknown),
            gaps: gaps(options, time),
        }
    }
}

/// Milliseconds with their fraction.
pub(crate) fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
