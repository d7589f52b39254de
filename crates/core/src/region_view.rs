//! The view of a region that was looked at in random windows.

use std::time::Duration;

use crate::estimator::{Rate, rate};
use crate::region::{Region, to_bp, unknown_bp};
use crate::snapshot::RegionView;
use crate::support::RateSupport;
use crate::unknown::{Unknown, UnknownPages};

/// The view of a region for a snapshot; its age counts intervals of length `interval`.
pub(crate) fn view(r: &Region, interval: Duration) -> RegionView {
    let s = &r.shares;
    if s.looks == 0 {
        let mut unseen = UnknownPages::default();
        unseen.0[Unknown::Unseen.index()] = 10_000;
        return RegionView {
            range: r.range,
            accesses_bp: 0,
            age: Duration::ZERO,
            rate: Rate { hz: 0.0, low: 0.0, high: f32::INFINITY },
            touched_bp: 0,
            resident_bp: 10_000,
            unknown_bp: unseen,
            support: Some(RateSupport::OLD),
        };
    }
    let unknown: f64 = s.unknown.iter().sum();
    let pages = |share: f64| share * s.pages as f64;
    let rate = rate(pages(s.young), pages(s.visible), u64::from(s.looks), s.exposure);
    RegionView {
        range: r.range,
        accesses_bp: r.accesses_bp.min(10_000),
        age: interval.saturating_mul(r.age),
        rate,
        // With few resident pages among many, `accesses_bp` rounds to zero.
        touched_bp: if r.accesses_bp > 0 || rate.hz > 0.0 { 10_000 } else { 0 },
        resident_bp: to_bp(s.visible + unknown),
        unknown_bp: unknown_bp(s),
        support: Some(RateSupport::MEASURED),
    }
}
