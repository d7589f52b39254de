//! The common parts of damo's records and those of isotherm.

use isotherm_core::{Attrs, RegionView, Snapshot};

use crate::header::{RecordingHeader, TargetInfo};

const TARGET: &str = "damon target ";
/// The beginning of the note of an imported record.
pub(crate) const IMPORTED: &str = "imported";
/// The note of an imported record whose sampling interval is not known.
pub(crate) const PRESUMED: &str =
    "imported; the sampling interval is presumed, because the file does not have it";
/// The beginning of the command of a target that a scheme of DAMON has reported.
pub(crate) const SCHEME: &str = "kdamond ";

/// The command of a target that is known by its number in DAMON only. The kdamond and the context are part of it
/// unless they are the first.
pub(crate) fn target_name(kdamond: i64, context: i64, id: u64) -> String {
    match (kdamond, context) {
        (0, 0) => format!("{TARGET}{id}"),
        _ => format!("{TARGET}{id} of {SCHEME}{kdamond} context {context}"),
    }
}

/// The kdamond and the context of an imported target; 0 if it has none.
pub(crate) fn place(fact: &TargetInfo) -> [u64; 2] {
    let of = |name| {
        let mut words = fact.command.split(' ').skip_while(|word| *word != name);
        words.nth(1).and_then(|i| i.parse().ok()).unwrap_or(0)
    };
    let imported = fact.command.starts_with(TARGET) || fact.command.starts_with(SCHEME);
    if imported && fact.pid.is_none() { ["kdamond", "context"].map(of) } else { [0; 2] }
}

/// The number of a target in DAMON: for a process its pid. Results of a scheme may have none.
pub(crate) fn target_id(fact: &TargetInfo) -> Option<u64> {
    if fact.command.starts_with(SCHEME) && fact.pid.is_none() {
        return None;
    }
    let of_name = fact.command.strip_prefix(TARGET).and_then(|rest| rest.split(' ').next());
    let of_name = of_name.and_then(|id| id.parse().ok());
    of_name.or(fact.pid.map(u64::from)).or(Some(fact.id.0.into()))
}

/// What a region's shares and times are in DAMON's counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DamonCounts {
    /// sampling intervals per aggregation interval
    samples: u64,
    /// aggregation interval in ns
    aggr: u128,
    /// whether ages are known
    ages: bool,
}

impl DamonCounts {
    /// The intervals are those of the recording. Those of a snapshot may differ: it may be longer, or the attributes may
    /// have changed. They count if the header of the record is damaged.
    pub fn of(facts: Option<&RecordingHeader>, s: &Snapshot) -> Self {
        let attrs = facts.map_or(&s.attrs, |facts| &facts.attrs);
        let ages = facts.is_none_or(|facts| !facts.missing.ages);
        let aggr = attrs.aggr.as_nanos().max(1);
        let samples = (aggr / attrs.sample.as_nanos().max(1)).max(1);
        DamonCounts { samples: u64::try_from(samples).unwrap_or(u64::MAX), aggr, ages }
    }

    /// The same, with ages in other aggregation intervals.
    pub fn in_intervals_of(self, attrs: &Attrs) -> Self {
        DamonCounts { aggr: attrs.aggr.as_nanos().max(1), ..self }
    }

    /// The count of accesses of memory that was found accessed each time.
    pub fn most(self) -> u64 {
        self.samples
    }

    /// The count of accesses. Any access counts as one at least.
    pub fn nr_accesses(self, r: &RegionView) -> u64 {
        let nr = (u64::from(r.accesses_bp).saturating_mul(self.samples) + 5_000) / 10_000;
        nr.max(u64::from(r.accesses_bp > 0))
    }

    /// The age in aggregation intervals, if it is known.
    pub fn age(self, r: &RegionView) -> Option<u128> {
        self.ages.then(|| (r.age.as_nanos() + self.aggr / 2) / self.aggr)
    }
}

/// Whether the intervals of a record are known.
pub(crate) fn knows_intervals(facts: &RecordingHeader) -> bool {
    // An edited record has more in its note.
    !facts.note.starts_with(PRESUMED)
}

/// Whether a record was imported. An edited one has more in its note.
pub(crate) fn is_imported(facts: &RecordingHeader) -> bool {
    facts.note.starts_with(IMPORTED)
}
