//! Snapshots made by hand, for tests.
#![allow(dead_code, reason = "each user takes what it needs")]

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, Cost, Mapping, MappingKind, MonitorKind, Nanos, Rate, RateSupport,
    RegionView, Snapshot, TargetId, TargetView, Unknown, UnknownPages,
};

/// The snapshot `seq` of a source that began 1000 s ago on its clock and makes one every `seconds`.
pub fn snapshot(seq: u64, seconds: f64, targets: Vec<TargetView>) -> Snapshot {
    let aggr = Duration::from_secs_f64(seconds);
    let start = Nanos(1_000_000_000_000 + seq * aggr.as_nanos() as u64);
    Snapshot {
        seq,
        start,
        end: start + aggr,
        attrs: Attrs { aggr, monitor: MonitorKind::Regions, ..Attrs::default() },
        cost: Cost { cpu: aggr / 100, looks: 50, pages: 800, clears: 20, ..Cost::default() },
        quality: None,
        targets,
    }
}

pub fn target(id: u32, mappings: Vec<Mapping>, regions: Vec<RegionView>) -> TargetView {
    let ran = Some(Duration::from_millis(200));
    TargetView {
        id: TargetId(id),
        ran,
        mappings: Arc::new(mappings),
        left_out: 0,
        dirty: None,
        regions,
        ages: None,
    }
}

pub fn mapping(start: u64, end: u64, name: &str) -> Mapping {
    let kind = match name {
        "" => MappingKind::Anonymous,
        "[heap]" => MappingKind::Heap,
        "[stack]" => MappingKind::Stack,
        _ => MappingKind::File,
    };
    Mapping { range: AddrRange::new(start, end), kind, name: name.into(), unknown: None }
}

/// A resident region; one that is not touched has not been for a minute.
pub fn region(start: u64, end: u64, hz: f32) -> RegionView {
    RegionView {
        range: AddrRange::new(start, end),
        accesses_bp: ((1.0 - (-hz * 0.02).exp()) * 1e4) as u32,
        age: Duration::from_secs(if hz > 0.0 { 1 } else { 60 }),
        rate: Rate { hz, low: hz * 0.8, high: hz * 1.2 },
        touched_bp: if hz > 0.0 { 10_000 } else { 0 },
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: Some(RateSupport::MEASURED),
    }
}

pub fn unknown(start: u64, end: u64, why: Unknown) -> RegionView {
    let mut r = region(start, end, 0.0);
    r.unknown_bp.0[why.index()] = 10_000;
    r
}

pub fn absent(start: u64, end: u64) -> RegionView {
    RegionView { resident_bp: 0, ..region(start, end, 0.0) }
}
