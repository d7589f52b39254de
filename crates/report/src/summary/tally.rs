//! Sums on the way to means.

use isotherm_core::{Cost, HeatBytes, Unknown};

use super::figures::{Bytes, MonitorFigures, WorkingSet};
use crate::distribution::Distribution;
use crate::units::percent;

/// Bytes, or bytes times seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) mapped: f64,
    pub(super) hot: f64,
    pub(super) warm: f64,
    pub(super) cold: f64,
    pub(super) absent: f64,
    pub(super) unknown: f64,
    pub(super) by_reason: [f64; Unknown::ALL.len()],
}

/// Times seconds, except for the maximum.
#[derive(Debug, Default)]
pub(super) struct CostTally {
    cpu: f64,
    looks: f64,
    clears: f64,
    regions: f64,
    regions_max: usize,
}

impl Tally {
    pub(super) fn of(b: &HeatBytes) -> Self {
        Tally {
            hot: b.hot as f64,
            warm: b.warm as f64,
            cold: b.cold as f64,
            absent: b.absent as f64,
            unknown: b.unknown as f64,
            ..Tally::default()
        }
    }

    pub(super) fn add(&mut self, o: &Tally, weight: f64) {
        self.mapped += o.mapped * weight;
        self.hot += o.hot * weight;
        self.warm += o.warm * weight;
        self.cold += o.cold * weight;
        self.absent += o.absent * weight;
        self.unknown += o.unknown * weight;
        for (sum, o) in self.by_reason.iter_mut().zip(o.by_reason) {
            *sum += o * weight;
        }
    }

    pub(super) fn working_set(&self) -> u64 {
        (self.hot + self.warm) as u64
    }

    /// Rounded so that parts add up to their totals.
    pub(super) fn mean(&self, seconds: f64) -> Bytes {
        let mean = |sum: f64| (sum / seconds).round() as u64;
        let [hot, warm, cold, unknown] = [self.hot, self.warm, self.cold, self.unknown].map(mean);
        let (absent, resident) = (mean(self.absent), hot + warm + cold + unknown);
        let reasons = Unknown::ALL.iter().zip(self.by_reason.map(mean));
        let mapped = mean(self.mapped).max(resident + absent);
        Bytes {
            mapped_bytes: mapped,
            resident_bytes: resident,
            hot_bytes: hot,
            warm_bytes: warm,
            cold_bytes: cold,
            unknown_bytes: unknown,
            unknown_bytes_by_reason: reasons
                .filter(|&(_, n)| n > 0)
                .map(|(why, n)| (why.name(), n))
                .collect(),
            absent_bytes: absent,
            left_out_bytes: mapped - resident - absent,
        }
    }
}

impl CostTally {
    /// A snapshot that is wanted only in part counts for its `share`.
    pub(super) fn add(&mut self, cost: &Cost, regions: usize, seconds: f64, share: f64) {
        self.cpu += cost.cpu.as_secs_f64() * share;
        self.looks += cost.looks as f64 * share;
        self.clears += cost.clears as f64 * share;
        self.regions += regions as f64 * seconds;
        self.regions_max = self.regions_max.max(regions);
    }

    pub(super) fn figures(&self, seconds: f64, bound: u32) -> MonitorFigures {
        MonitorFigures {
            cpu_percent: percent(self.cpu, seconds),
            looks_per_s: self.looks / seconds,
            clears_per_s: self.clears / seconds,
            regions_mean: self.regions / seconds,
            regions_max: self.regions_max,
            regions_bound: bound,
        }
    }
}

/// As defined at [`WorkingSet`].
pub(super) fn working_set(mut sizes: Distribution) -> WorkingSet {
    WorkingSet {
        p50_bytes: sizes.percentile(50.0),
        p95_bytes: sizes.percentile(95.0),
        max_bytes: sizes.percentile(100.0),
    }
}
