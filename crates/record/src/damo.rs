//! The common parts of damo's records and those of isotherm.

use isotherm_core::{Attrs, RegionView};

use crate::header::{RecordingHeader, TargetInfo};

const TARGET: &str = "damon target ";
/// The note of an imported record whose sampling interval is not known.
pub(crate) const PRESUMED: &str =
    "imported; the sampling interval is presumed, because the file does not have it";
/// The beginning of the command of a target that a scheme of DAMON has reported.
pub(crate) const SCHEME: &str = "kdamond ";

/// The command of a target that is known by its number in DAMON only.
pub(crate) fn target_name(id: u64) -> String {
    format!("{TARGET}{id}")
}

/// The number of a target in DAMON: for a process its pid. Results of a scheme may have none.
pub(crate) fn target_id(fact: &TargetInfo) -> Option<u64> {
    if fact.command.starts_with(SCHEME) && fact.pid.is_none() {
        return None;
    }
    let of_name = fact.command.strip_prefix(TARGET).and_then(|id| id.parse().ok());
    of_name.or(fact.pid.map(u64::from)).or(Some(fact.id.0.into()))
}

/// What a region's shares and times are in DAMON's counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// sampling intervals per aggregation interval
    samples: u64,
    /// aggregation interval in ns
    aggr: u128,
}

impl Counts {
    pub fn of(attrs: &Attrs) -> Self {
        let aggr = attrs.aggr.as_nanos().max(1);
        let samples = (aggr / attrs.sample.as_nanos().max(1)).max(1);
        Counts { samples: u64::try_from(samples).unwrap_or(u64::MAX), aggr }
    }

    /// The count of accesses. Any access counts as one at least.
    pub fn nr_accesses(self, r: &RegionView) -> u64 {
        let nr = (u64::from(r.accesses_bp).saturating_mul(self.samples) + 5_000) / 10_000;
        nr.max(u64::from(r.accesses_bp > 0))
    }

    /// The age in aggregation intervals.
    pub fn age(self, r: &RegionView) -> u128 {
        (r.age.as_nanos() + self.aggr / 2) / self.aggr
    }
}

/// Whether the intervals of a record are known.
pub(crate) fn knows_intervals(facts: &RecordingHeader) -> bool {
    // An edited record has more in its note.
    !facts.note.starts_with(PRESUMED)
}
