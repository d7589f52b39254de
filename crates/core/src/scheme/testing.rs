//! Snapshots made by hand.

use std::sync::Arc;
use std::time::Duration;

use crate::attrs::Attrs;
use crate::estimator::Rate;
use crate::ops::{Cost, Mapping, MappingKind, Pages, TargetId};
use crate::range::{AddrRange, PAGE_SIZE};
use crate::snapshot::{RegionView, Snapshot, TargetView};
use crate::time::Nanos;

/// `len` pages from the `at`-th on.
pub fn pages(at: u64, len: u64) -> AddrRange {
    AddrRange::new(at * PAGE_SIZE, (at + len) * PAGE_SIZE)
}

/// All resident, all touched at `hz`, or none.
pub fn view(at: u64, len: u64, hz: f64, age: Duration) -> RegionView {
    let hz = hz as f32;
    let touched_bp = if hz > 0.0 { 10_000 } else { 0 };
    RegionView {
        range: pages(at, len),
        accesses_bp: (f64::from(-(-hz * 0.02).exp_m1()) * 10_000.0).ceil() as u32,
        age,
        rate: Rate { hz, low: hz, high: hz },
        touched_bp,
        resident_bp: 10_000,
        unknown_bp: Pages::default(),
    }
}

/// Mapped as its regions lie.
pub fn target(id: u32, regions: &[RegionView]) -> TargetView {
    let mapping = |r: &RegionView| Mapping {
        range: r.range,
        kind: MappingKind::Anonymous,
        name: Arc::from(""),
        unknown: None,
    };
    TargetView {
        id: TargetId(id),
        ran: None,
        mappings: Arc::new(regions.iter().map(mapping).collect()),
        left_out: 0,
        regions: regions.to_vec(),
    }
}

/// As of `ms` milliseconds.
pub fn snapshot(ms: u64, targets: Vec<TargetView>) -> Snapshot {
    let end = Nanos(ms * 1_000_000);
    Snapshot {
        seq: 0,
        start: end,
        end,
        attrs: Attrs::default(),
        cost: Cost::default(),
        quality: None,
        targets,
    }
}
