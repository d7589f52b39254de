//! The basis of figures, which every report prints.

use std::ops::Range;
use std::time::Duration;

use isotherm_core::{HeatBytes, Missing};
use serde::{Serialize, Serializer};

use crate::filter::{Gap, Options};

/// The part of the record that was used, the thresholds of hot and cold, and the amount of unknown memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Basis {
    /// start of the time, since the start of the recording
    pub from_ms: f64,
    /// end of the time, since the start of the recording
    pub to_ms: f64,
    /// number of snapshots in that time
    pub snapshots: u64,
    /// memory is hot at or above this rate
    pub hot_hz: f64,
    /// memory is cold if untouched for at least this long
    pub cold_ms: f64,
    /// the way to look; empty if the record does not contain it
    pub look: String,
    /// figures that the record does not have
    #[serde(serialize_with = "names")]
    pub missing: Missing,
    /// mean over the time; `None` if the record does not contain it
    pub resident_bytes: Option<u64>,
    /// resident memory whose accesses cannot be observed, mean over the time
    pub unknown_bytes: u64,
    /// times within it for which a damaged record has no data
    pub gaps: Vec<GapFigures>,
}

/// A part of a record that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GapFigures {
    /// start, since the start of the recording
    pub from_ms: f64,
    /// end, since the start of the recording
    pub to_ms: f64,
    /// number of missing snapshots, as far as it is known
    pub snapshots: u64,
}

/// The gaps within this time, as figures.
pub(crate) fn gaps(options: &Options, time: &Range<Duration>) -> Vec<GapFigures> {
    let inside = |g: &&Gap| g.time.start <= time.end && g.time.end >= time.start;
    let figures = |g: &Gap| GapFigures {
        from_ms: ms(g.time.start),
        to_ms: ms(g.time.end),
        snapshots: g.snapshots,
    };
    options.gaps.iter().filter(inside).map(figures).collect()
}

/// Sums from which a [`Basis`] is computed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BasisTally {
    pub seconds: f64,
    snapshots: u64,
    resident: f64,
    unknown: f64,
}

impl BasisTally {
    /// Adds a snapshot of this length.
    pub(crate) fn begin(&mut self, seconds: f64) {
        self.seconds += seconds;
        self.snapshots += 1;
    }

    /// Adds memory of a snapshot, in bytes times seconds.
    pub(crate) fn add(&mut self, resident: f64, unknown: f64) {
        self.resident += resident;
        self.unknown += unknown;
    }

    /// Adds all memory of a snapshot.
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
            missing: options.missing,
            resident_bytes: options.missing.resident(mean(self.resident)),
            unknown_bytes: mean(self.unknown),
            gaps: gaps(options, time),
        }
    }
}

/// Serializes the names of missing figures.
pub(crate) fn names<S: Serializer>(missing: &Missing, s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(missing.names())
}

/// Milliseconds with their fraction.
pub(crate) fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
