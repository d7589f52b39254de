//! Calibration: whether the intervals of rates contain the true rates, on small random machines.

use std::time::Duration;

use isotherm_core::{AddrRange, Attrs, Nanos, PAGE_SIZE, Rate, RegionView, Snapshot, watch};

use crate::area::MappingSpec;
use crate::machine::Machine;
use crate::ops::Ops;
use crate::pattern::TouchPattern;
use crate::random::{mix, unit};
use crate::run::run;
use crate::truth::Truth;
use crate::workload::PlayError;

/// A published region, and its true rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated {
    /// addresses
    pub range: AddrRange,
    /// the reported rate
    pub rate: Rate,
    /// expected touches per page and second: the mean over all pages, or, if the region is reported as touched
    /// in part, over its touched pages
    pub true_hz: f64,
}

impl Calibrated {
    /// Whether the interval contains the truth.
    #[must_use]
    pub fn is_held(&self) -> bool {
        f64::from(self.rate.low) <= self.true_hz && self.true_hz <= f64::from(self.rate.high)
    }
}

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;
/// Minimum and maximum rate of a stretch, in Hz.
const RATES: (f64, f64) = (0.05, 1_000.0);

/// The regions of the last snapshot after `time`, without unknown memory. The machine has about 48 MiB. Its
/// stretches of 1 to 7 MiB are touched at random, at rates over four decades, or not at all.
///
/// # Errors
/// If `attrs` are invalid.
pub fn calibrate(seed: u64, attrs: Attrs, time: Duration) -> Result<Vec<Calibrated>, PlayError> {
    let mut machine = Machine::new(seed);
    let target = machine.spawn();
    let stretches = stretches(seed);
    let end = stretches.last().map_or(BASE, |(range, _)| range.end);
    machine.map(target, AddrRange::new(BASE, end), MappingSpec::anonymous())?;
    for (range, hz) in stretches.into_iter().filter(|(_, hz)| *hz > 0.0) {
        machine.touch(target, range, TouchPattern::Poisson { hz })?;
    }
    let ops = Ops::new(machine);
    let mut monitor = watch(ops.clone(), attrs, &[target], seed)?;
    let snapshots = run(&mut *monitor, &ops, Nanos(0) + time)?;
    let machine = ops.machine();
    let truth = machine.truth(target)?;
    Ok(snapshots.last().map_or_else(Vec::new, |s| compared(s, &truth)))
}

/// The ranges of memory, and the rates at which their pages are touched.
fn stretches(seed: u64) -> Vec<(AddrRange, f64)> {
    let (mut at, mut i) = (BASE, 0);
    let mut random = || {
        i += 1;
        unit(mix(seed, i))
    };
    let mut out = Vec::new();
    while at < BASE + 48 * MIB {
        let len = (1.0 + random() * 7.0) as u64 * MIB;
        let (is_touched, place) = (random() < 0.75, random());
        let hz = RATES.0 * (RATES.1 / RATES.0).powf(place);
        out.push((AddrRange::new(at, at + len), if is_touched { hz } else { 0.0 }));
        at += len;
    }
    out
}

fn compared(s: &Snapshot, truth: &Truth<'_>) -> Vec<Calibrated> {
    let regions = s.targets.iter().flat_map(|t| &t.regions);
    let known = regions.filter(|r| r.unknown_bp.total() == 0 && r.resident_bp > 0);
    known.filter_map(|r| of(r, s, truth)).collect()
}

fn of(r: &RegionView, s: &Snapshot, truth: &Truth<'_>) -> Option<Calibrated> {
    let pages = (r.range.len() / PAGE_SIZE) as usize;
    let addresses = (0..pages as u64).map(|i| r.range.start + i * PAGE_SIZE);
    let rates: Vec<f64> = addresses.map(|a| truth.rate_hz(a, s.start, s.end)).collect();
    let touched = rates.iter().filter(|&&hz| hz > 0.0).count();
    let in_part = (1..10_000).contains(&r.touched_bp);
    let of = if in_part { touched } else { pages };
    let true_hz = rates.iter().sum::<f64>() / of.max(1) as f64;
    (of > 0).then_some(Calibrated { range: r.range, rate: r.rate, true_hz })
}

/// How often intervals contain the truth, for regions whose true rate is within a decade.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Decade {
    /// minimum true rate of the decade, in Hz; 0: untouched memory
    pub from_hz: f64,
    /// number of regions
    pub regions: usize,
    /// regions whose interval contains the truth
    pub held: usize,
    /// regions whose interval is completely above the truth
    pub above: usize,
    /// mean of the binary logarithm of the rate over the truth, over regions where neither is 0
    pub bias_log2: f64,
    /// median of half of the width of the intervals, as a binary logarithm; infinite if the interval is open
    pub width_log2: f64,
}

/// Figures by decades of the true rate, ascending.
#[must_use]
pub fn by_decade(all: &[Calibrated]) -> Vec<Decade> {
    let decade = |c: &Calibrated| {
        if c.true_hz > 0.0 { 10f64.powf(c.true_hz.log10().floor()) } else { 0.0 }
    };
    let mut sorted = all.to_vec();
    sorted.sort_by(|a, b| a.true_hz.total_cmp(&b.true_hz));
    let groups = sorted.chunk_by(|a, b| decade(a).total_cmp(&decade(b)).is_eq());
    groups.map(|g| Decade::of(decade(&g[0]), g)).collect()
}

impl Decade {
    /// Figures over all regions of `group`.
    #[must_use]
    pub fn of(from_hz: f64, group: &[Calibrated]) -> Self {
        let is_told = |c: &&Calibrated| c.true_hz > 0.0 && c.rate.hz > 0.0;
        let biases = group.iter().filter(is_told);
        let biases: Vec<f64> = biases.map(|c| (f64::from(c.rate.hz) / c.true_hz).log2()).collect();
        let width = |c: &Calibrated| c.rate.error_log2().map_or(f64::INFINITY, f64::from);
        let mut widths: Vec<f64> = group.iter().map(width).collect();
        widths.sort_by(f64::total_cmp);
        Decade {
            from_hz,
            regions: group.len(),
            held: group.iter().filter(|c| c.is_held()).count(),
            above: group.iter().filter(|c| f64::from(c.rate.low) > c.true_hz).count(),
            bias_log2: biases.iter().sum::<f64>() / biases.len().max(1) as f64,
            width_log2: widths.get(widths.len() / 2).copied().unwrap_or(f64::INFINITY),
        }
    }
}
