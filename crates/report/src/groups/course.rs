//! A row over time: sums over parts of the time.

use std::collections::BTreeMap;

use isotherm_core::PAGE_SIZE;

use super::rows::{GroupBytes, TimeBucket};

/// Bytes times seconds, and pages that were read back.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    resident: f64,
    hot: f64,
    warm: f64,
    cold: f64,
    unknown: f64,
    saved: Option<f64>,
    faults: Option<u64>,
}

impl Sums {
    fn add(&mut self, s: &GroupBytes, seconds: f64) {
        let times = |bytes: u64| bytes as f64 * seconds;
        self.resident += times(s.resident_bytes.unwrap_or_default());
        self.hot += times(s.hot_bytes);
        self.warm += times(s.warm_bytes);
        self.cold += times(s.cold_bytes);
        self.unknown += times(s.unknown_bytes);
        if let Some(saved) = s.saved_bytes {
            *self.saved.get_or_insert(0.0) += times(saved);
        }
    }

    fn join(&mut self, o: &Sums) {
        self.resident += o.resident;
        self.hot += o.hot;
        self.warm += o.warm;
        self.cold += o.cold;
        self.unknown += o.unknown;
        if let Some(saved) = o.saved {
            *self.saved.get_or_insert(0.0) += saved;
        }
        if let Some(faults) = o.faults {
            let all = self.faults.get_or_insert(0);
            *all = all.saturating_add(faults);
        }
    }

    fn mean(&self, seconds: f64) -> GroupBytes {
        let mean = |sum: f64| (sum / seconds.max(f64::MIN_POSITIVE)).round() as u64;
        GroupBytes {
            resident_bytes: Some(mean(self.resident)),
            hot_bytes: mean(self.hot),
            warm_bytes: mean(self.warm),
            cold_bytes: mean(self.cold),
            unknown_bytes: mean(self.unknown),
            saved_bytes: self.saved.map(mean),
        }
    }

    fn refaulted(&self) -> Option<u64> {
        self.faults.map(|faults| faults.saturating_mul(PAGE_SIZE))
    }
}

/// The parts of the time, by number. Empty parts are left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Course {
    parts: BTreeMap<u32, Sums>,
    now: GroupBytes,
    /// number of the snapshot to which `now` belongs, counted from 1
    of: u64,
}

impl Course {
    /// Adds the row's memory in the `n`th snapshot, which belongs to part `part`.
    pub(super) fn add(&mut self, part: u32, n: u64, s: &GroupBytes, seconds: f64) {
        if self.of != n {
            (self.of, self.now) = (n, GroupBytes::default());
        }
        self.now.add(s);
        self.parts.entry(part).or_default().add(s, seconds);
    }

    /// Adds pages of the row that were read back in part `part`.
    pub(super) fn refault(&mut self, part: u32, faults: u64) {
        let sums = Sums { faults: Some(faults), ..Sums::default() };
        self.parts.entry(part).or_default().join(&sums);
    }

    /// Merges each two parts into one.
    pub(super) fn halve(&mut self) {
        for (part, sums) in std::mem::take(&mut self.parts) {
            self.parts.entry(part / 2).or_default().join(&sums);
        }
    }

    /// The row's memory in the `n`th snapshot.
    pub(super) fn last(&self, n: u64) -> GroupBytes {
        if self.of == n { self.now } else { GroupBytes::default() }
    }

    /// Means over `seconds`, and bytes read back.
    pub(super) fn whole(&self, seconds: f64) -> (GroupBytes, Option<u64>) {
        let mut all = Sums::default();
        self.parts.values().for_each(|sums| all.join(sums));
        (all.mean(seconds), all.refaulted())
    }

    /// The parts. For the number of a part, `times` returns its start and end in ms, and the seconds of it that
    /// snapshots cover.
    pub(super) fn over_time(&self, times: impl Fn(u32) -> (f64, f64, f64)) -> Vec<TimeBucket> {
        let part = |(&part, sums): (&u32, &Sums)| {
            let (from_ms, to_ms, seconds) = times(part);
            TimeBucket {
                from_ms,
                to_ms,
                mean: sums.mean(seconds),
                refaulted_bytes: sums.refaulted(),
            }
        };
        self.parts.iter().map(part).collect()
    }
}
