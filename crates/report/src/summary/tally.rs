//! Sums from which means are computed.

use isotherm_core::{
    Attrs, DirtyBytes, HeatBytes, Missing, Quality, Restraint, Snapshot, SupportBytes, Unknown,
};

use super::rows::{Bytes, MonitorFigures, WorkingSet};
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
    /// measured, extended and old
    support: [f64; 3],
    pub(super) unknown: f64,
    pub(super) by_reason: [f64; Unknown::ALL.len()],
    /// of files: dirty, and under writeback
    dirty: [f64; 2],
}

/// Costs times seconds, except for the maximum.
#[derive(Debug, Default)]
pub(super) struct CostTally {
    cpu: f64,
    lost: f64,
    looks: f64,
    clears: f64,
    regions: f64,
    regions_max: usize,
    quality: QualityTally,
}

/// Quality of the snapshots that report it, times seconds.
#[derive(Debug, Default)]
struct QualityTally {
    seconds: f64,
    coverage_bp: f64,
    /// seconds of snapshots that report an error
    errors: f64,
    error_log2: f64,
    externally_cleared: f64,
    restrained: f64,
}

impl Tally {
    pub(super) fn of_dirty(bytes: &DirtyBytes) -> Self {
        Tally { dirty: [bytes.dirty, bytes.writeback].map(|n| n as f64), ..Tally::default() }
    }

    pub(super) fn of(b: &HeatBytes, s: &SupportBytes) -> Self {
        Tally {
            hot: b.hot as f64,
            warm: b.warm as f64,
            cold: b.cold as f64,
            absent: b.absent as f64,
            unknown: b.unknown as f64,
            support: [s.measured, s.extended, s.old].map(|n| n as f64),
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
        for (sum, o) in self.support.iter_mut().zip(o.support) {
            *sum += o * weight;
        }
        for (sum, o) in self.by_reason.iter_mut().zip(o.by_reason) {
            *sum += o * weight;
        }
        for (sum, o) in self.dirty.iter_mut().zip(o.dirty) {
            *sum += o * weight;
        }
    }

    pub(super) fn working_set(&self) -> u64 {
        (self.hot + self.warm) as u64
    }

    /// Means, rounded so that the sum of the parts equals the total.
    pub(super) fn mean(&self, seconds: f64, missing: Missing) -> Bytes {
        let mean = |sum: f64| (sum / seconds).round() as u64;
        let [hot, warm, cold, unknown] = [self.hot, self.warm, self.cold, self.unknown].map(mean);
        let (absent, resident) = (mean(self.absent), hot + warm + cold + unknown);
        let reasons = Unknown::ALL.iter().zip(self.by_reason.map(mean));
        let [measured, extended, old] = self.support.map(mean);
        let [dirty, writeback] = self.dirty.map(mean);
        let mapped = mean(self.mapped).max(resident + absent);
        Bytes {
            mapped_bytes: mapped,
            resident_bytes: missing.resident(resident),
            hot_bytes: hot,
            warm_bytes: warm,
            cold_bytes: cold,
            unknown_bytes: unknown,
            unknown_bytes_by_reason: reasons
                .filter(|&(_, n)| n > 0)
                .map(|(why, n)| (why.name(), n))
                .collect(),
            measured_bytes: measured,
            extended_bytes: extended,
            old_bytes: old,
            absent_bytes: missing.resident(absent),
            left_out_bytes: mapped - resident - absent,
            dirty_bytes: dirty,
            writeback_bytes: writeback,
        }
    }
}

impl CostTally {
    /// Adds a snapshot; `share` of it is in the selected time.
    pub(super) fn add(&mut self, s: &Snapshot, seconds: f64, share: f64) {
        let (cost, regions) = (&s.cost, s.nr_regions());
        self.cpu += cost.cpu.as_secs_f64() * share;
        self.lost += cost.lost.as_secs_f64() * share;
        self.looks += cost.looks as f64 * share;
        self.clears += cost.clears as f64 * share;
        self.regions += regions as f64 * seconds;
        self.regions_max = self.regions_max.max(regions);
        if let Some(q) = &s.quality {
            self.quality.add(q, seconds, share);
        }
    }

    pub(super) fn figures(&self, seconds: f64, attrs: &Attrs) -> MonitorFigures {
        let q = &self.quality;
        let average = |value: f64| (q.seconds > 0.0).then(|| value / q.seconds);
        MonitorFigures {
            kind: attrs.monitor.name(),
            cpu_percent: percent(self.cpu, seconds),
            lost_percent: percent(self.lost, seconds),
            budget_percent: attrs.budget().map(|ppm| f64::from(ppm) / 1e4),
            coverage_percent: average(q.coverage_bp / 100.0),
            error_log2: (q.errors > 0.0).then(|| q.error_log2 / q.errors),
            stolen_per_s: average(q.externally_cleared),
            restrained_percent: average(q.restrained * 100.0),
            looks_per_s: self.looks / seconds,
            clears_per_s: self.clears / seconds,
            regions_mean: self.regions / seconds,
            regions_max: self.regions_max,
            regions_bound: attrs.max_regions,
        }
    }
}

impl QualityTally {
    fn add(&mut self, q: &Quality, seconds: f64, share: f64) {
        self.seconds += seconds;
        self.coverage_bp += f64::from(q.coverage_bp) * seconds;
        if let Some(error) = q.error_log2 {
            self.errors += seconds;
            self.error_log2 += f64::from(error) * seconds;
        }
        self.externally_cleared += q.externally_cleared as f64 * share;
        if q.restraint > Restraint::None {
            self.restrained += seconds;
        }
    }
}

/// See [`WorkingSet`].
pub(super) fn working_set(mut sizes: Distribution) -> WorkingSet {
    WorkingSet {
        p50_bytes: sizes.percentile(50.0),
        p95_bytes: sizes.percentile(95.0),
        max_bytes: sizes.percentile(100.0),
    }
}
